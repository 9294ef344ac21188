// Keys and values, block by block: in place where their rows are contiguous, else copied.
//
//   KeyBlocks<float> blocks(source, kernels, b, key_head, workspace.lists);
//   if (!blocks.start(tiles, chunk, 1.25)) ...                   // keys that the tiles look at
//   while (blocks.next()) {                                      // blocks.now(): the current one
//     for (tile of tiles)
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

  // `load_k` and `load_v` copy rows into the plan's key form.
  KeyBlocks(const KeySource& source, const plan::TilePlan& plan, const CopyKernel& load_k,
            const CopyKernel& load_v, std::int64_t b, std::int64_t key_head, BlockLists& lists);

  void use(const Room& room) { room_ = room; }

  // Begins with the keys that all of the tiles look at inside a range. False, and nothing has begun,
  // if those are more than `most` times the keys that each of them looks at.
  template <class Tile>
  bool start(std::span<Tile> tiles, layout::Range keys, double most) {
    double sum = 0;
    for (const auto& tile : tiles) sum += static_cast<double>(count_inside(tile.runs, keys));
    const double bound = most * sum / static_cast<double>(tiles.size());
    lists_.wanted.clear();
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      // The last one comes second: it has the least in common with the first.
      const std::size_t place = i == 0 ? 0 : i == 1 ? tiles.size() - 1 : i - 1;
      lists_.wanted.add(tiles[place].runs, keys);
      if (static_cast<double>(lists_.wanted.count()) > bound) return false;
    }
    start();
    return true;
  }
  // Begins with those of one tile.
  void start(std::span<const layout::Run> runs, layout::Range keys) {
    lists_.wanted.clear();
    lists_.wanted.add(runs, keys);
    start();
  }
  bool next();

  [[nodiscard]] const KeyBlock<F>& now() const { return now_; }
  // Whether there are keys before `end` that come in later blocks.
  [[nodiscard]] bool more_before(std::int64_t end) const {
    return run_ < wanted().size() && at_ < end;
  }
  // What a tile with these runs looks at in the current block; find_block_runs() says what `next`
  // is. Valid until the next call.
  std::span<const BlockRun> runs_of(std::span<const layout::Run> runs, std::size_t& next) {
    find_block_runs(lists_.runs, lists_.block, runs, next);
    return lists_.runs;
  }

 private:
  void start();
  [[nodiscard]] std::span<const layout::Run> wanted() const { return lists_.wanted.runs(); }
  const KeyRows& rows_at(std::int64_t position);
  [[nodiscard]] std::int64_t piece_end() const { return wanted()[run_].piece(piece_).end; }
  // The keys of the next key's chunk. Blocks of plain runs end where chunks do, so that no tile needs
  // a call for the end of one chunk and another for the beginning of the next.
  [[nodiscard]] layout::Range chunk() const { return plan::keys_of_chunk(plan::chunk_of(at_)); }
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
  std::size_t run_ = 0;  // of the wanted ones, its piece, and the next key in that
  std::int64_t piece_ = 0;
  std::int64_t at_ = 0;
};

}  // namespace treadle::run
