// Cuts queries into tiles.
//
// In: an order, positions of queries, a tile height. Out: the queries of each tile.
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

void Tiles::set_one(Range queries) {
  order_ = {};
  queries_ = queries;
  height_ = queries.count();
  axes_.assign(1, {.low = queries.begin, .count = queries.count()});
}

Tiles::Tiles(const Order& order, Range queries, std::int64_t height)
    : order_(order), queries_(queries), height_(height) {
  constexpr std::int64_t longest = std::numeric_limits<std::int32_t>::max();
  if (queries.begin < 0 || queries.end < queries.begin || queries.end > longest) {
    if (queries.begin == 0)
      base::fail("layout: {} queries; lengths are between 0 and {}", queries.end, longest);
    base::fail("layout: queries {} up to {}; positions ascend from 0 to {}", queries.begin,
               queries.end, longest);
  }
  if (height < 1) base::fail("layout: tiles of height {}; the height must be at least 1", height);
  if (order.modulus < 1) base::fail("layout: an order by {}; it must be at least 1", order.modulus);
  const std::int64_t modulus = order.modulus;
  switch (order.kind) {
    case Order::Kind::identity: add_line(queries.begin, queries.count(), 1); break;
    case Order::Kind::blocks:
      for (std::int64_t low = queries.begin; low < queries.end;) {
        const std::int64_t end = std::min((low / modulus + 1) * modulus, queries.end);
        add_line(low, end - low, 1);
        low = end;
      }
      break;
    case Order::Kind::residue:
      for (std::int64_t low = queries.begin; low < std::min(queries.begin + modulus, queries.end);
           ++low) {
        add_line(low, (queries.end - low + modulus - 1) / modulus, modulus);
      }
      break;
    case Order::Kind::rectangle: add_rectangles(); break;
  }
}

// Rows of the grid that the queries fill; what comes before and after them are lines.
void Tiles::add_rectangles() {
  const std::int64_t width = order_.modulus;
  if (order_.rows < 1 || order_.columns < 1 || order_.rows * order_.columns > height_) {
    base::fail("layout: rectangles of {} x {}; they must hold 1 to {} queries", order_.rows,
               order_.columns, height_);
  }
  const std::int64_t first_row = (queries_.begin + width - 1) / width;
  const std::int64_t last_row = std::max(queries_.end / width, first_row);  // the one past them
  const std::int64_t before = std::min(first_row * width, queries_.end);
  add_line(queries_.begin, before - queries_.begin, 1);
  for (std::int64_t row = first_row; row < last_row; row += order_.rows) {
    for (std::int64_t column = 0; column < width; column += order_.columns) {
      axes_.push_back({.low = row * width + column,
                       .count = std::min(order_.columns, width - column),
                       .step = 1,
                       .outer_count = std::min(order_.rows, last_row - row),
                       .outer_step = width});
    }
  }
  const std::int64_t after = std::max(last_row * width, before);
  add_line(after, queries_.end - after, 1);
}

void Tiles::add_line(std::int64_t low, std::int64_t count, std::int64_t step) {
  for (std::int64_t at = 0; at < count; at += height_) {
    axes_.push_back({.low = low + at * step, .count = std::min(height_, count - at), .step = step});
  }
}

Tiles Tiles::some(std::span<const Range> tiles) const {
  Tiles some;
  some.order_ = order_;
  some.queries_ = queries_;
  some.height_ = height_;
  std::int64_t rows = 0;
  for (const Range& range : tiles) {
    for (std::int64_t tile = range.begin; tile < range.end; ++tile) {
      some.axes_.push_back(axis(tile));
      some.first_rows_.push_back(rows);
      rows += size(tile);
    }
  }
  return some;
}

std::int64_t Tiles::alike_end(std::int64_t tile) const {
  if (order_.kind != Order::Kind::residue) return count();
  const auto residue = [&](std::int64_t t) { return axis(t).low % order_.modulus; };
  std::int64_t end = tile + 1;
  while (end < count() && residue(end) == residue(tile)) ++end;
  return end;
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
