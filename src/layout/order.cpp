// In: an order, a number of queries, a tile height; out: the queries of each tile.
#include "layout/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace treadle::layout {

std::string to_text(const Order& order) {
  switch (order.kind) {
    case Order::Kind::identity: return "identity";
    case Order::Kind::blocks: return fmt::format("blocks of {}", order.modulus);
    case Order::Kind::residue: return fmt::format("residues of {}", order.modulus);
    case Order::Kind::rectangle:
      return fmt::format("{} x {} rectangles of a grid {} wide", order.rows, order.columns,
                         order.modulus);
  }
  return "?";
}

Tiles::Tiles(const Order& order, std::int64_t queries, std::int64_t height)
    : order_(order), queries_(queries), height_(height) {
  constexpr std::int64_t longest = std::numeric_limits<std::int32_t>::max();
  if (queries < 0 || queries > longest) {
    base::fail("layout: {} queries; lengths are between 0 and {}", queries, longest);
  }
  if (height < 1) base::fail("layout: tiles of height {}; the height must be at least 1", height);
  if (order.modulus < 1) base::fail("layout: an order by {}; it must be at least 1", order.modulus);
  switch (order.kind) {
    case Order::Kind::identity: add_line(0, queries, 1); break;
    case Order::Kind::blocks:
      for (std::int64_t low = 0; low < queries; low += order.modulus) {
        add_line(low, std::min(order.modulus, queries - low), 1);
      }
      break;
    case Order::Kind::residue:
      for (std::int64_t r = 0; r < std::min(order.modulus, queries); ++r) {
        add_line(r, (queries - r + order.modulus - 1) / order.modulus, order.modulus);
      }
      break;
    case Order::Kind::rectangle: {
      const std::int64_t width = order.modulus;
      if (order.rows < 1 || order.columns < 1 || order.rows * order.columns > height) {
        base::fail("layout: rectangles of {} x {}; they must hold 1 to {} queries", order.rows,
                   order.columns, height);
      }
      const std::int64_t grid_rows = queries / width;  // whole ones; the rest is a line of its own
      for (std::int64_t row = 0; row < grid_rows; row += order.rows) {
        for (std::int64_t column = 0; column < width; column += order.columns) {
          axes_.push_back({.low = row * width + column,
                           .count = std::min(order.columns, width - column),
                           .step = 1,
                           .outer_count = std::min(order.rows, grid_rows - row),
                           .outer_step = width});
        }
      }
      add_line(grid_rows * width, queries - grid_rows * width, 1);
      break;
    }
  }
}

void Tiles::add_line(std::int64_t low, std::int64_t count, std::int64_t step) {
  for (std::int64_t at = 0; at < count; at += height_) {
    axes_.push_back({.low = low + at * step, .count = std::min(height_, count - at), .step = step});
  }
}

std::optional<passes::Axis> Tiles::joined(std::int64_t first, std::int64_t last) const {
  const passes::Axis& a = axis(first);
  const passes::Axis& z = axis(last);
  if (first == last) return a;
  // Tiles of a line continue one another; rectangles and different residues do not.
  if (order_.kind == Order::Kind::rectangle) return std::nullopt;
  if (order_.kind == Order::Kind::residue && a.low % order_.modulus != z.low % order_.modulus)
    return std::nullopt;
  return passes::Axis{.low = a.low, .count = (z.low - a.low) / a.step + z.count, .step = a.step};
}

}  // namespace treadle::layout
