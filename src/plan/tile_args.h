// The arguments that all kernels for a tile of queries and a block of keys begin with.
//
// A tile has rows, where its queries lie in memory, and positions, what mods and masks see as q.
// Kernels know positions alone; loading and storing rows is run's.
#pragma once

#include <cstdint>

#include "plan/dropout_args.h"

namespace treadle::plan {

// Floats are of the plan's compute type; `width` is the plan's.
struct TileArgs {
  const void* keys = nullptr;                   // [count][dim], in the plan's KeyForm
  const void* values = nullptr;                 // [count][value_dim]
  const std::int32_t* key_positions = nullptr;  // [count]: kv of each, ascending
  std::int64_t count = 0;                       // 1 .. key_block
  const void* queries = nullptr;  // [dim][width], multiplied with scale * ScoreForm::factor()
  const std::int32_t* positions = nullptr;  // [width]: q of each; the last one fills the rest
  std::int64_t active = 0;                  // how many queries there are
  std::int64_t b = 0, h = 0;
  const std::int64_t* score_captures = nullptr;  // descriptors (plan/capture_descriptors.h)
  const std::int64_t* mask_captures = nullptr;
  // Scratch of the reads that are staged, as many bytes for each of key_block * width pairs as
  // plan::staged_bytes() says of all mods.
  void* staged = nullptr;
  void* frame = nullptr;  // scratch of mods in pieces, plan::frame_bytes() of one after the other
  const DropoutArgs* dropout = nullptr;  // of kernels that drop weights
  std::int64_t* poisoned = nullptr;      // set to 1 when a visible score or a visibility is poison
};

}  // namespace treadle::plan
