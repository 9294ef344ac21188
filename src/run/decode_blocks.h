// DecodeBlocks: keys of some runs, block by block, as decode kernels take them (plan/decode_kernel.h).
//
//   DecodeBlocks blocks(source, entry, key_head, room);
//   for (blocks.start(runs, chunk); blocks.next();)
//     kernel({.groups = blocks.now().groups, .next = blocks.ahead().groups, ...});
//
// Kernels want each vector's worth of keys to be neighbours, with rows at equal distances. Rows may lie
// anywhere, in short pages for instance: then they are copied, as they are, and so are keys that are
// fewer than a vector's worth. A block ends where keys of
// the other kind begin, full or partial.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "layout/run.h"
#include "plan/decode_kernel.h"
#include "run/key_source.h"
#include "run/scratch.h"

namespace treadle::run {

// What blocks of a kernel are like.
struct DecodeBlockSize {
  std::int64_t keys = 0, lanes = 0;
  std::int64_t key_bytes = 0, value_bytes = 0;  // of a row
};

struct DecodeBlock {
  plan::KeyGroup* groups = nullptr;              // [keys / lanes]
  std::byte *keys = nullptr, *values = nullptr;  // [keys] rows: copies
  // [keys], the last one fills the rest of its vector; scales if the source has them.
  float *key_scales = nullptr, *value_scales = nullptr;
  std::int32_t* positions = nullptr;
  std::int64_t count = 0;
  bool full = false;

  static DecodeBlock carve(Carver& carver, const DecodeBlockSize& size);
};

class DecodeBlocks {
 public:
  // The current block and the next one.
  struct Room {
    DecodeBlock now, ahead;
    DecodeBlockSize size;

    Room(Carver& carver, const DecodeBlockSize& most)
        : now(DecodeBlock::carve(carver, most)),
          ahead(DecodeBlock::carve(carver, most)),
          size(most) {}
  };

  DecodeBlocks(const KeySource& source, std::int64_t entry, std::int64_t key_head, const Room& room)
      : source_(source), entry_(entry), key_head_(key_head), room_(room) {}

  // Begins with the keys of the runs inside a range.
  void start(std::span<const layout::Run> runs, layout::Range keys);
  bool next();

  [[nodiscard]] const DecodeBlock& now() const { return room_.now; }
  // What to ask for meanwhile: a block that has at least as many groups.
  [[nodiscard]] const DecodeBlock& ahead() const {
    return room_.ahead.count < room_.now.count ? room_.now : room_.ahead;
  }

 private:
  void fill(DecodeBlock& block);
  bool take_group(DecodeBlock& block);
  // Of the current piece: those that come next and whose rows are at equal distances, at most so many.
  [[nodiscard]] std::int64_t next_alike(std::int64_t most);
  void copy_keys(DecodeBlock& block, std::int64_t count);
  void take(DecodeBlock& block, std::int64_t count);
  // Goes to the next piece of keys that is inside the range, if there is one.
  void find_piece();

  const KeySource& source_;
  std::int64_t entry_, key_head_;
  Room room_;
  std::span<const layout::Run> runs_;
  layout::Range inside_;
  std::int64_t piece_ = 0;  // of the first of runs_
  layout::Range left_;      // of that piece, inside the range
  KeyRows rows_;            // the piece of rows looked at last
};

}  // namespace treadle::run
