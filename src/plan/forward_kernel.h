// The forward kernel: one tile of queries against one block of keys.
//
//   scores -> score mod -> mask -> running maximum -> powers of two -> weighted sum of values
//
// A tile's state is m, l and O, the last two relative to 2^ceil(m); calls for the blocks of a
// chunk, in ascending order of keys, go on from where the last one stopped. What a sparse tile sees
// of several chunks is one call. Nothing here knows
// layouts, strides, types of tensors or threads: that is run's.
#pragma once

#include <cstdint>

#include "base/hash.h"
#include "ir/graph.h"
#include "plan/fetch_list.h"
#include "plan/mod_facts.h"
#include "plan/score_form.h"
#include "plan/tile_args.h"
#include "plan/tile_plan.h"

namespace treadle::plan {

struct ForwardKernelArgs {
  TileArgs tile;
  void* scores = nullptr;   // [key_block][width], scratch
  void* sums = nullptr;     // [value_dim][width]: O, not yet divided by l
  void* maximum = nullptr;  // [width]: m, in powers of two; -inf at first
  void* weight = nullptr;   // [width]: l; 0 at first
  // Where chunks end, in places of the block, if the block's keys are all that the tile sees of
  // these chunks: then each is summed on its own and added to m, l and O, which are those of the
  // chunks before. None: the keys go on with m, l and O, which are those of their chunk alone.
  // Kernels of sparse plans know of chunks, unless they are exact_nonfinite.
  const std::int32_t* chunk_ends = nullptr;
  std::int64_t chunks = 0;
  // Kernels that know of chunks take from it. What is missing in the cache is only slower.
  FetchList* fetch = nullptr;
};

struct ForwardKernelSpec {
  using Args = ForwardKernelArgs;

  TilePlan plan;
  ScoreForm score;
  ModFacts score_facts;
  bool masked = false;  // else every query sees every key of the block
  ir::Graph mask;       // the first output says what is visible, the last one whether a pair fails
  ModFacts mask_facts;
  // NaN and infinities go exactly where the reference has them: slower, for tiles that turned out
  // to hold some.
  bool exact_nonfinite = false;
  // Weights of some pairs are 0, but count in l. O is still without the factor of the others.
  bool dropout = false;

  bool operator==(const ForwardKernelSpec&) const = default;
};

base::Key key(const ForwardKernelSpec& spec);

}  // namespace treadle::plan
