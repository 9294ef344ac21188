// Query orders: which queries share a tile.
//
//   const Tiles tiles({.kind = Order::Kind::residue, .modulus = 128}, 4096, 16);
//   tiles.count()        256: two tiles of 16 for each residue
//   tiles.query(3, 0)    2049: tile 3 has the upper half of residue 1,
//   tiles.query(3, 1)    2177: in steps of 128
//
// A tile is handled at once, one query in each lane of its vectors, against one key at a time. So
// tiles whose queries see the same keys waste nothing: identity suits local masks, residue classes
// strided ones, rectangles neighbourhoods on a grid. No order moves any data: a tile reads its
// queries by position.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layout/range.h"
#include "passes/box.h"

namespace treadle::layout {

struct Order {
  enum class Kind : std::uint8_t {
    identity,   // 0, 1, 2, ...
    blocks,     // the same, but no tile crosses a multiple of `modulus`
    residue,    // queries of equal q % modulus together, in ascending order
    rectangle,  // of a grid of width `modulus`: `rows` x `columns` neighbours together
  };
  Kind kind = Kind::identity;
  std::int64_t modulus = 1;
  std::int64_t rows = 1, columns = 1;

  bool operator==(const Order&) const = default;
};

std::string to_text(const Order& order);

class Tiles {
 public:
  Tiles() = default;
  Tiles(const Order& order, Range queries, std::int64_t height);
  // Makes these one tile of all queries, of which there are some, in their order.
  void set_one(Range queries);

  [[nodiscard]] const Order& order() const { return order_; }
  [[nodiscard]] std::int64_t height() const { return height_; }  // the most that a tile holds
  [[nodiscard]] Range queries() const { return queries_; }       // all of them
  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(axes_.size()); }

  // Whether the tiles are the same.
  bool operator==(const Tiles& other) const {
    return order_ == other.order_ && queries_ == other.queries_ && height_ == other.height_ &&
           first_rows_.size() == other.first_rows_.size() &&
           (first_rows_.empty() || axes_ == other.axes_);
  }

  // The queries of a tile, as one axis of a box.
  [[nodiscard]] const passes::Axis& axis(std::int64_t tile) const {
    return axes_[static_cast<std::size_t>(tile)];
  }
  [[nodiscard]] std::int64_t size(std::int64_t tile) const {
    return axis(tile).count * axis(tile).outer_count;
  }
  // The i-th query of a tile; rectangles go row by row.
  [[nodiscard]] std::int64_t query(std::int64_t tile, std::int64_t i) const {
    const passes::Axis& a = axis(tile);
    return a.low + i % a.count * a.step + i / a.count * a.outer_step;
  }

  // Only these tiles, in this order; their queries then lie in memory tile after tile.
  [[nodiscard]] Tiles some(std::span<const Range> tiles) const;
  // Where the i-th query of a tile lies: so many rows after the first.
  [[nodiscard]] std::int64_t row(std::int64_t tile, std::int64_t i) const {
    return first_rows_.empty() ? query(tile, i) - queries_.begin
                               : first_rows_[static_cast<std::size_t>(tile)] + i;
  }
  // Whether rows lie tile after tile.
  [[nodiscard]] bool packed() const { return !first_rows_.empty(); }

  // Where tiles end that may look at the same keys as this one: those of a residue class, or all.
  [[nodiscard]] std::int64_t alike_end(std::int64_t tile) const;

  // The queries of neighbouring tiles first .. last as one axis, if they are one.
  [[nodiscard]] std::optional<passes::Axis> joined(std::int64_t first, std::int64_t last) const;

 private:
  void add_rectangles();
  void add_line(std::int64_t low, std::int64_t count, std::int64_t step);

  Order order_;
  Range queries_;
  std::int64_t height_ = 1;
  std::vector<passes::Axis> axes_;
  std::vector<std::int64_t> first_rows_;  // of each tile, if only some are here
};

}  // namespace treadle::layout
