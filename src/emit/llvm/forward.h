// The forward kernel: one tile of queries against one block of keys.
//
//   scores -> score mod -> mask -> running maximum -> powers of two -> weighted sum of values
//
// A tile's state is its maximum, its sum of weights and its weighted values, all relative to
// 2^ceil(maximum); calls for the blocks of a chunk, in ascending order of keys, go on from where
// the last one stopped. Nothing here knows layouts, strides, types of tensors or threads: that is
// run's.
#pragma once

#include <cstdint>

#include "base/hash.h"
#include "emit/llvm/module.h"
#include "ir/graph.h"
#include "plan/forward.h"
#include "plan/mod_facts.h"
#include "plan/score_form.h"

namespace treadle::emit {

// What a kernel is called with. Floats are of the plan's compute type; `width` is the plan's.
struct BlockArgs {
  const void* keys = nullptr;             // [count][dim]
  const void* values = nullptr;           // [count][value_dim]
  const std::int32_t* indices = nullptr;  // [count]: which keys these are, ascending
  std::int64_t count = 0;                 // 1 .. key_block
  const void* queries = nullptr;  // [dim][width], multiplied with scale * ScoreForm::factor()
  void* scores = nullptr;         // [key_block][width], scratch
  void* sums = nullptr;           // [value_dim][width]
  void* maximum = nullptr;        // [width], in powers of two; -inf at first
  void* weight = nullptr;         // [width]; 0 at first
  const std::int32_t* rows =
      nullptr;              // [width]: which queries these are; the last one fills the rest
  std::int64_t active = 0;  // how many there are
  std::int64_t b = 0, h = 0;
  const std::int64_t* score_words = nullptr;  // captures (emit/llvm/mod.h)
  const std::int64_t* mask_words = nullptr;
  std::int64_t* poisoned = nullptr;  // set to 1 when a visible score or a visibility is poison
};

using BlockKernel = void(const BlockArgs*);

struct BlockSpec {
  plan::ForwardPlan plan;
  plan::ScoreForm score;
  plan::ModFacts score_facts;
  bool masked = false;  // else every query sees every key of the block
  ir::Graph mask;
  plan::ModFacts mask_facts;
  // NaN and infinities go exactly where the reference has them: slower, for tiles that turned out
  // to hold some.
  bool careful = false;
};

base::Hash key(const BlockSpec& spec);
Module emit_block(const BlockSpec& spec);

}  // namespace treadle::emit
