// BackwardKeys: the tiles of a group against keys: P and dS, their part of dQ, and what they add to
// dK and dV.
//
//   BackwardKeys<float> keys(shared, task, workspace.lists, gradients);
//   keys.use(room);
//   keys.look_at(tiles);                // of a group, loaded
//   keys.run(range, last_of_leaf);      // those of one chunk: its part is in room.dq of each tile
//   keys.run_all(chunks, last_of_leaf); // those of all chunks that there are: dQ is in room.dq_total
#pragma once

#include <cstdint>
#include <span>

#include "run/backward_room.h"
#include "run/backward_tile.h"
#include "run/backward_worker.h"
#include "run/chunk_places.h"
#include "run/key_blocks.h"
#include "run/task_gradients.h"

namespace treadle::run {

template <class F>
class BackwardKeys {
 public:
  BackwardKeys(BackwardShared<F>& shared, const plan::BackwardTask& task, BlockLists& lists,
               TaskGradients<F>& gradients);

  // Which outlives this.
  void use(BackwardRoom<F>& room);
  void look_at(std::span<BackwardTile<F>> tiles);

  void run(layout::Range keys, bool last_of_leaf);
  void run_all(layout::Range chunks, bool last_of_leaf);

 private:
  [[nodiscard]] const plan::TilePlan& plan() const { return shared_.kernels.plan; }
  [[nodiscard]] std::int64_t width() const { return plan().width(); }
  // Where P and dS of a tile begin.
  [[nodiscard]] std::int64_t first(std::size_t number) const {
    return static_cast<std::int64_t>(number) * block_rows(plan()) * width();
  }
  void run_block(layout::Range tiles, bool last_of_leaf);
  layout::Range run_tile(std::size_t number);
  void run_chunks(std::size_t number, std::span<const BlockRun> runs);
  void run_places(std::size_t number, const BlockRun& run, F* dq, std::int64_t chunks = 0);
  void hide(std::int64_t tile, layout::Range places);
  void widen_places(layout::Range tiles);

  BackwardShared<F>& shared_;
  const BackwardProblem& problem_;
  KeyBlocks<F> blocks_;
  TaskGradients<F>& gradients_;
  BackwardRoom<F>* room_ = nullptr;
  std::span<BackwardTile<F>> tiles_;
  // Whether its Q and dO hold infinities or NaN that have to be kept from hidden pairs.
  bool exact_queries_ = false, exact_dout_ = false;
  bool all_chunks_ = false;  // blocks have keys of several, each of which has sums of its own
  ChunkRoom chunks_;
  std::span<const ChunkPlaces> parts_;  // of the current block
  std::int64_t poisoned_ = 0;
};

}  // namespace treadle::run
