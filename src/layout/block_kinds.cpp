// In: runs of keys; out: kinds of blocks.
#include "layout/block_kinds.h"

#include <algorithm>

namespace treadle::layout {

std::vector<BlockKind> block_kinds(const Layout& layout, std::int64_t b, std::int64_t h,
                                   std::int64_t key_block, Tails tails) {
  const Tiles& tiles = layout.tiles();
  const std::int64_t keys = layout.extent().keys.count();
  const std::int64_t width = blocks_of(keys, key_block);
  std::vector<BlockKind> kinds(static_cast<std::size_t>(tiles.count() * width), BlockKind::empty);
  for (std::int64_t tile = 0; tile < tiles.count(); ++tile) {
    const bool whole_rows = tiles.size(tile) == tiles.height();
    BlockKind* row = kinds.data() + tile * width;
    for (const Run& run : layout.runs(b, h, tile)) {
      for (std::int64_t block = run.begin() / key_block; block * key_block < run.end(); ++block) {
        const std::int64_t begin = block * key_block;
        const std::int64_t end = begin + key_block;
        // Neighbouring full runs are one run, so a full block lies in a single one.
        const bool covered = run.full() && run.begin() <= begin && std::min(end, keys) <= run.end();
        const bool whole = whole_rows && end <= keys;
        row[block] =
            covered && (whole || tails == Tails::cut) ? BlockKind::full : BlockKind::partial;
      }
    }
  }
  return kinds;
}

}  // namespace treadle::layout
