// What each block of a grid holds: no visible pair, some, or only visible ones.
//
//   block_kinds(layout, 0, 0, 64, Tails::cut)     one per (tile, 64 keys), tile by tile
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

}  // namespace treadle::layout
