// Blocks of keys, and which part of a block each tile has to look at.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layout/run.h"
#include "run/wanted_keys.h"

namespace treadle::run {

// Keys of a block, the first of them at place `place` of the block and the others after it. That
// the run says full or partial means nothing here.
struct Segment {
  layout::Run keys;
  std::int64_t place = 0;
};

// Places begin .. end of a block that a tile has to look at, all full or all partial.
struct BlockRun {
  std::int64_t begin = 0, end = 0;
  bool full = false;
};

// Lists that are filled again and again, so that they need no new memory.
struct BlockLists {
  WantedKeys wanted;           // keys that a group of tiles has to look at
  std::vector<Segment> block;  // those of the current block
  std::vector<BlockRun> runs;  // what one tile looks at in it
};

// The places of a block that the runs cover, ascending, neighbours of one kind joined. Runs before
// `next` end before the block, and `next` moves on to where the following block will begin looking.
void find_block_runs(std::vector<BlockRun>& found, std::span<const Segment> block,
                     std::span<const layout::Run> runs, std::size_t& next);

}  // namespace treadle::run
