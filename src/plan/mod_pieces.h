// ModPieces: how the graph of a large mod is cut into pieces of bounded size.
//
//   const ModPieces pieces = cut(graph, on, level, {.whole = 256, .piece = 128});
//   pieces.piece[id]    // which piece computes the node
//   pieces.place[id]    // where its value is kept for other pieces; -1: it is not
//
// A code generator needs far more than twice the time, and stack, for twice the code in one
// function. So a large mod becomes many functions, and what one of them computes for another lies in
// memory: the frame. Whether a mod is cut, and where, depends on its graph alone, and not on what is
// known about a call. A piece does what the same nodes do in a mod that is whole, to the bit.
#pragma once

#include <array>
#include <cstdint>

#include "ir/graph.h"
#include "ir/per_node.h"
#include "plan/dependence.h"

namespace treadle::plan {

// How large is large.
struct PieceSize {
  std::int32_t whole = 256;  // a mod of up to this weight is not cut
  std::int32_t piece = 128;  // nodes of a piece

  bool operator==(const PieceSize&) const = default;
};

// Places of a frame are in three areas, by what is computed as often.
enum class Area : std::uint8_t {
  uniform,  // one value: levels head and key
  queries,  // one value for each lane, apart for each vector of a tile
  pairs,    // one value for each lane, those of the pair that is computed
};
inline constexpr int areas = 3;
Area area_of(Level level);

struct ModPieces {
  std::int32_t count = 0;  // 0: the mod is whole, and the rest is empty
  // Pieces are computed in the order of their numbers, each level's for itself. -1: none, as of
  // inputs, which are given, and of constants, which are known everywhere.
  ir::PerNode<std::int32_t> piece;
  ir::PerNode<std::int32_t> place;
  // Of an index that a read may take apart: where its value at the first query is kept.
  ir::PerNode<std::int32_t> first_place;
  std::array<std::int64_t, areas> places{};  // by area

  [[nodiscard]] bool whole() const { return count == 0; }
};

// Its nodes, where a read of several dimensions counts as eight more: the parts of its address that
// change rarely are kept for all vectors of a tile.
std::int32_t weight_of(const ir::Graph& graph);

ModPieces cut(const ir::Graph& graph, const ir::PerNode<Dependence>& on,
              const ir::PerNode<Level>& level, const PieceSize& size);

// Where things lie in a frame, in bytes. Values have 4 or 8 bytes and poison has one.
struct FrameLayout {
  // In front of each area: what pieces need besides the values of nodes.
  static constexpr std::int64_t header = 128;

  std::int64_t lanes = 0, value_bytes = 8;
  std::array<std::int64_t, areas> places{};

  // From the beginning of an area.
  [[nodiscard]] std::int64_t value(Area area, std::int32_t place) const {
    return header + place * (area == Area::uniform ? 8 : lanes * value_bytes);
  }
  [[nodiscard]] std::int64_t poison(Area area, std::int32_t place) const {
    const auto all = static_cast<std::int32_t>(places[static_cast<std::size_t>(area)]);
    return value(area, all) + place * (area == Area::uniform ? 1 : lanes);
  }
  [[nodiscard]] std::int64_t bytes(Area area) const;
  // Areas follow one another: uniform, pairs, and queries for each vector.
  [[nodiscard]] std::int64_t begin(Area area, int vector) const;
};

FrameLayout frame_layout(const ModPieces& pieces, std::int64_t lanes, std::int64_t value_bytes);

// The most that a frame takes, whatever its values are and however many vectors a tile has.
std::int64_t frame_bytes(const ModPieces& pieces, std::int64_t lanes);

}  // namespace treadle::plan
