// Keys and values, block by block: in place where their rows are contiguous, else copied.
//
//   KeyBlocks<float> blocks(source, kernels, b, key_head, workspace.lists);
//   blocks.clear();
//   for (tile of a group) blocks.want(tile.runs, chunk);         // which keys the group looks at
//   blocks.start();
//   while (blocks.next()) {                                      // blocks.now(): the current one
//     for (tile of the group)
//       for (const BlockRun& run : blocks.runs_of(tile.runs, tile.next_run)) ...
//   }
#pragma once

#include <cstdint>
#include <span>

#include "layout/layout.h"
#include "plan/chunks.h"
#include "plan/tile_plan.h"
#include "run/blocks.h"
#include "run/key_source.h"
#include "run/rows.h"
#include "run/scratch.h"

namespace treadle::run {

// Some keys, ascending, as kernels read them.
template <class F>
struct KeyBlock {
  const F *keys = nullptr, *values = nullptr;  // [count][dim], [count][value_dim]
  const std::int32_t* positions = nullptr;     // [count]
  std::int64_t count = 0;
  std::span<const Segment> segments;  // which keys are at which places
};

template <class F>
class KeyBlocks {
 public:
  // Scratch for a block.
  struct Room {
    F *keys = nullptr, *values = nullptr;
    std::int32_t* positions = nullptr;

    static Room carve(Carver& carver, const plan::TilePlan& plan);
  };

  // How many keys a group looks at, and how many its tiles do, added up.
  struct Wanted {
    std::int64_t keys = 0, sum = 0;
    bool are_copied = false;  // most of them
  };

  // `load_k` and `load_v` copy rows into the plan's key form.
  KeyBlocks(const KeySource& source, const plan::TilePlan& plan, const CopyKernel& load_k,
            const CopyKernel& load_v, std::int64_t b, std::int64_t key_head, BlockLists& lists);

  void use(const Room& room) { room_ = room; }

  void clear() { lists_.wanted.clear(); }
  void want(std::span<const layout::Run> runs, layout::Range keys) {
    add_wanted(lists_.wanted, runs, keys.begin, keys.end);
  }
  Wanted start();
  bool next();

  [[nodiscard]] const KeyBlock<F>& now() const { return now_; }
  // Whether there are keys before `end` that come in later blocks.
  [[nodiscard]] bool more_before(std::int64_t end) const {
    return segment_ < lists_.wanted.size() && at_ < end;
  }
  // What a tile with these runs looks at in the current block; find_block_runs() says what `next`
  // is. Valid until the next call.
  std::span<const BlockRun> runs_of(std::span<const layout::Run> runs, std::size_t& next) {
    find_block_runs(lists_.runs, lists_.block, runs, next);
    return lists_.runs;
  }

 private:
  const KeyRows& rows_at(std::int64_t position);
  [[nodiscard]] std::int64_t piece_end() const {
    return lists_.wanted[segment_].keys.piece(piece_).end;
  }
  // Blocks of plain runs end where chunks do, so that no tile needs a call for the end of one chunk
  // and another for the beginning of the next.
  [[nodiscard]] std::int64_t chunk_end() const {
    return plan::keys_of_chunk(plan::chunk_of(at_)).end;
  }
  void take(std::int64_t most);
  void take(const layout::Run& run);
  void copy(std::int64_t place, std::int64_t count);

  const KeySource& source_;
  const plan::TilePlan& plan_;
  const CopyKernel &load_k_, &load_v_;
  std::int64_t batch_, head_;
  bool copies_;
  BlockLists& lists_;
  Room room_;
  KeyRows rows_;  // the piece looked at last
  KeyBlock<F> now_;
  std::size_t segment_ = 0;  // of the wanted ones, its piece, and the next key in that
  std::int64_t piece_ = 0;
  std::int64_t at_ = 0;
};

}  // namespace treadle::run
