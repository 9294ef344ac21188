// Says for each block of a grid whether its pairs are visible.
//
// In: the runs of a layout. Out: the kind of each block, row by row.
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
    for_each_piece(layout.runs(b, h, tile), [&](Range seen, bool full) {
      for (std::int64_t block = seen.begin / key_block; block * key_block < seen.end; ++block) {
        const std::int64_t begin = block * key_block;
        const std::int64_t end = begin + key_block;
        // Neighbouring full pieces are one piece, so a full block lies in a single one.
        const bool covered = full && seen.begin <= begin && std::min(end, keys) <= seen.end;
        const bool whole = whole_rows && end <= keys;
        row[block] =
            covered && (whole || tails == Tails::cut) ? BlockKind::full : BlockKind::partial;
      }
    });
  }
  return kinds;
}

std::vector<BlockKind> block_kinds(const Layout& layout, std::int64_t b, std::int64_t h,
                                   const BlockShape& block, Tails tails) {
  const Tiles& tiles = layout.tiles();
  const std::int64_t queries = layout.extent().queries.count();
  const std::int64_t keys = layout.extent().keys.count();
  const std::int64_t rows = blocks_of(queries, block.queries);
  const std::int64_t width = blocks_of(keys, block.keys);
  const std::vector<BlockKind> by_tile = block_kinds(layout, b, h, block.keys, Tails::cut);
  std::vector<BlockKind> kinds(static_cast<std::size_t>(rows * width), BlockKind::empty);
  std::vector<bool> begun(static_cast<std::size_t>(rows));
  const auto add = [&](std::int64_t tile, std::int64_t row) {
    for (std::int64_t column = 0; column < width; ++column) {
      const BlockKind here = by_tile[static_cast<std::size_t>(tile * width + column)];
      BlockKind& kind = kinds[static_cast<std::size_t>(row * width + column)];
      kind = !begun[static_cast<std::size_t>(row)] || kind == here ? here : BlockKind::partial;
    }
    begun[static_cast<std::size_t>(row)] = true;
  };
  for (std::int64_t tile = 0; tile < tiles.count(); ++tile) {
    std::int64_t last = -1;
    for (std::int64_t i = 0; i < tiles.size(tile); ++i) {
      const std::int64_t row = tiles.query(tile, i) / block.queries;
      if (row != last) add(tile, row);
      last = row;
    }
  }
  for (std::int64_t i = 0; tails == Tails::hidden && i < rows * width; ++i) {
    const bool whole =
        (i / width + 1) * block.queries <= queries && (i % width + 1) * block.keys <= keys;
    BlockKind& kind = kinds[static_cast<std::size_t>(i)];
    if (!whole && kind == BlockKind::full) kind = BlockKind::partial;
  }
  return kinds;
}

}  // namespace treadle::layout
