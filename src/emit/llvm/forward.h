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
#include "emit/llvm/tile_args.h"
#include "ir/graph.h"
#include "plan/forward.h"
#include "plan/mod_facts.h"
#include "plan/score_form.h"

namespace treadle::emit {

// What a kernel is called with.
struct BlockArgs {
  TileArgs tile;
  void* scores = nullptr;   // [key_block][width], scratch
  void* sums = nullptr;     // [value_dim][width]
  void* maximum = nullptr;  // [width], in powers of two; -inf at first
  void* weight = nullptr;   // [width]; 0 at first
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
