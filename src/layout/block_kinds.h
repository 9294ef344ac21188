// What each block of a grid holds: no visible pair, some, or only visible ones.
//
//   block_kinds(layout, 0, 0, 64, Tails::cut)         one per (tile, 64 keys), tile by tile
//   block_kinds(layout, 0, 0, {128, 64}, Tails::cut)  one per (128 queries, 64 keys) for any tiles
#pragma once

#include <cstdint>
#include <vector>

#include "layout/layout.h"

namespace treadle::layout {

enum class BlockKind : std::uint8_t { empty, partial, full };

// Blocks at the end that stick out over the lengths: what is outside
enum class Tails : std::uint8_t {
  cut,    // does not exist, so they may be full
  hidden  // is not visible, so they are partial at most
};

inline std::int64_t blocks_of(std::int64_t length, std::int64_t block) {
  return (length + block - 1) / block;
}

// One batch and head of a layout in identity order, whose tiles are the rows of the grid.
std::vector<BlockKind> block_kinds(const Layout& layout, std::int64_t b, std::int64_t h,
                                   std::int64_t key_block, Tails tails);

struct BlockShape {
  std::int64_t queries = 1, keys = 1;
};

// The same for tiles of any order and height. A tile that has queries of several rows cannot say in
// which of them a partial column is seen, so it makes their blocks partial. A block that is called
// empty or full is so in any case.
std::vector<BlockKind> block_kinds(const Layout& layout, std::int64_t b, std::int64_t h,
                                   const BlockShape& block, Tails tails);

}  // namespace treadle::layout
