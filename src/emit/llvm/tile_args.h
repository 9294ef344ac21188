// The arguments that all kernels for a tile of queries and a block of keys begin with.
#pragma once

#include <cstdint>

namespace treadle::emit {

// Floats are of the plan's compute type; `width` is the plan's.
struct TileArgs {
  const void* keys = nullptr;             // [count][dim]
  const void* values = nullptr;           // [count][value_dim]
  const std::int32_t* indices = nullptr;  // [count]: which keys these are, ascending
  std::int64_t count = 0;                 // 1 .. key_block
  const void* queries = nullptr;       // [dim][width], multiplied with scale * ScoreForm::factor()
  const std::int32_t* rows = nullptr;  // [width]: which queries; the last one fills the rest
  std::int64_t active = 0;             // how many there are
  std::int64_t b = 0, h = 0;
  const std::int64_t* score_words = nullptr;  // captures (emit/llvm/mod.h)
  const std::int64_t* mask_words = nullptr;
  std::int64_t* poisoned = nullptr;  // set to 1 when a visible score or a visibility is poison
};

}  // namespace treadle::emit
