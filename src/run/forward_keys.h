// ForwardKeys: the tiles of a task against the keys that one term of the mask shows them.
//
//   ForwardKeys<float> keys(shared, task, workspace.lists);
//   keys.use(room, tiles);
//   keys.look_at(term);          // each tile's runs begin anew
//   keys.run();                  // m, l and O of each tile's keys
#pragma once

#include <cstdint>
#include <span>

#include "run/chunk_places.h"
#include "run/cut_sums.h"
#include "run/forward_room.h"
#include "run/forward_worker.h"
#include "run/key_blocks.h"

namespace treadle::run {

template <class F>
class ForwardKeys {
 public:
  ForwardKeys(ForwardShared& shared, const plan::Task& task, BlockLists& lists);

  void use(const ForwardRoom<F>& room, std::span<ForwardTile<F>> tiles);
  // A term of the pass, by its number.
  void look_at(std::size_t term);

  // All of the task's chunks. A cut task saves what it finds, others have it in tile.total if
  // tile.started.
  void run();
  // A tile that turned out to hold an infinity or a NaN: again, keeping hidden keys apart from
  // visible ones.
  void run_exactly(ForwardTile<F>& tile);

 private:
  [[nodiscard]] const layout::Order& order() const { return term_->layout.tiles().order(); }
  void save_nothing(layout::Range chunks);
  void run_blocks(std::span<ForwardTile<F>> tiles, bool exact);
  void run_block(ForwardTile<F>& tile, std::span<const ChunkPlaces> parts, bool exact);
  void run_whole(ForwardTile<F>& tile, const BlockRun& places, std::int64_t chunks);
  void run_part(ForwardTile<F>& tile, layout::Range places, std::span<const BlockRun> runs,
                bool exact);
  void run_places(ForwardTile<F>& tile, const BlockRun& run, bool exact, std::int64_t chunks = 0);
  void end_chunk(ForwardTile<F>& tile, std::int64_t chunk);
  void merge_chunk(ForwardTile<F>& tile);

  ForwardShared& shared_;
  const ForwardProblem& problem_;
  const plan::Task& task_;
  CutSums<F> cuts_;
  KeyBlocks<F> blocks_;
  std::int64_t dim_, value_dim_;
  ForwardRoom<F> room_;
  std::span<ForwardTile<F>> tiles_;
  ChunkRoom chunks_;  // of the current block
  const ForwardPass::Term* term_ = nullptr;
  std::size_t term_number_ = 0;
  std::int64_t poisoned_ = 0;
  bool exactly_ = false;  // a tile that was complete is run again
};

}  // namespace treadle::run
