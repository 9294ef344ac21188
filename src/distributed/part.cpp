// Pieces made ready to run.
#include "distributed/part.h"

#include <algorithm>
#include <array>

#include "backend/held_layout.h"
#include "plan/chunks.h"

namespace treadle::distributed {
namespace {

using layout::Range;

Range tiles_of(Range leaves, const PassPlan& pass) {
  return {leaves.begin * pass.tiles_per_leaf,
          std::min(leaves.end * pass.tiles_per_leaf, pass.tiles.count())};
}

const layout::Layout& layout_of(const Slice& slice) {
  return slice.layout.held()->terms.front().layout;
}

// Of each list, what some tiles of its query heads look at; `batch`: of these entries of the part.
std::vector<Ranges> keys_of_tiles(const Part& part, const Slice& slice, const backend::Sizes& all,
                                  Range batch, Range tiles) {
  const layout::Layout& layout = layout_of(slice);
  const backend::Sizes own = part.sizes(all);
  const std::int64_t heads = own.heads / own.key_heads;
  const auto collect = [&](Range entries, Range query_heads) {
    KeySet keys;
    for (std::int64_t b = entries.begin; b < entries.end; ++b) {
      for (std::int64_t h = query_heads.begin; h < query_heads.end; ++h) {
        for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile)
          keys.add(layout.runs(b, h, tile));
        if (!layout.per_head()) break;
      }
      if (!layout.per_batch()) break;
    }
    return keys.take();
  };
  if (!layout.per_head() && !layout.per_batch()) return {collect(batch, {0, 1})};
  std::vector<Ranges> lists;
  for (std::int64_t b = 0; b < own.key_batch; ++b)
    for (std::int64_t h = 0; h < own.key_heads; ++h)
      lists.push_back(collect(own.key_batch == own.batch && own.batch > 1 ? Range{b, b + 1} : batch,
                              {h * heads, (h + 1) * heads}));
  return lists;
}

}  // namespace

PartShape shape_of(const Piece& piece, const std::vector<PassPlan>& passes, Range chunks) {
  const PassPlan& pass = passes[static_cast<std::size_t>(piece.pass)];
  PartShape shape;
  shape.piece = piece;
  const Range tiles = piece.tiles.empty() ? tiles_of(piece.leaves, pass) : piece.tiles;
  shape.tiles = pass.tiles.some(std::span(&tiles, 1));
  shape.numbers = tiles;
  shape.joins = piece.chunks.empty() && !chunks.empty();
  shape.cut = piece.chunks != chunks && !shape.joins;
  shape.first = piece.chunks.begin == chunks.begin;
  shape.states = shape.cut || passes.size() > 1;
  shape.final = !shape.states;
  return shape;
}

backend::Sizes Part::sizes(const backend::Sizes& all) const {
  backend::Sizes own = all;
  const std::int64_t per_key_head = all.heads / all.key_heads;
  own.batch = piece.batch.count();
  own.heads = heads(per_key_head).count();
  own.key_batch = all.key_batch == 1 ? 1 : own.batch;
  own.key_heads = piece.key_heads.count();
  own.first_b = all.first_b + piece.batch.begin;
  own.first_h = all.first_h + heads(per_key_head).begin;
  return own;
}

Part make_part(const PartShape& shape, const backend::QueryPasses& passes, const PassPlan& pass,
               const backend::Sizes& sizes, const Shards& queries, int rank, Sums sums,
               const base::Workers& workers) {
  Part part;
  static_cast<PartShape&>(part) = shape;
  for (int r = 0; r < queries.ranks(); ++r)
    part.from.push_back(runs_in(part.tiles, {queries.begin(r), queries.end(r)}));
  // Who joins has no work that waits for rows.
  part.own = part.joins || rows_of(part.from[static_cast<std::size_t>(rank)]) == part.rows();
  if (part.joins) return part;

  const Piece& piece = part.piece;
  const backend::Sizes own = part.sizes(sizes);
  const Layout whole =
      passes.build(static_cast<std::size_t>(piece.pass), own.extent(), part.tiles, workers);
  const auto add = [&](Range chunks) {
    const layout::Range keys{plan::keys_of_chunks(chunks).begin,
                             std::min(plan::keys_of_chunks(chunks).end, sizes.keys.end)};
    auto held = std::make_shared<Layout::Held>(*whole.held());
    held->terms.front().layout = layout::restricted(held->terms.front().layout, keys);
    part.slices.push_back({chunks, Layout(std::move(held))});
  };
  if (!part.cut) {
    part.slices.push_back({piece.chunks, whole});
  } else if (part.first) {
    add(piece.chunks);
  } else {
    for (std::int64_t c = piece.chunks.begin; c < piece.chunks.end; ++c) add({c, c + 1});
  }

  // Entries that share keys have their leaves one after another.
  const bool shares = sizes.key_batch == 1 && sizes.batch > 1;
  const std::int64_t leaves = pass.leaves();
  const Range entries = shares ? piece.batch : Range(1);
  for (std::int64_t b = entries.begin; b < entries.end; ++b)
    for (std::int64_t leaf = piece.leaves.begin; leaf < piece.leaves.end; ++leaf)
      part.leaves.push_back(sums == Sums::per_rank ? std::ssize(part.leaves) : b * leaves + leaf);
  part.all_leaves =
      sums == Sums::per_rank ? std::ssize(part.leaves) : (shares ? sizes.batch : 1) * leaves;
  part.tree = plan::tree_parts(part.leaves, part.all_leaves);
  return part;
}

void add_batches(Part& part, int rank, const backend::QueryPasses& passes, const PassPlan& pass,
                 const backend::Sizes& sizes, const Shards& queries, const base::Workers& workers) {
  constexpr std::int64_t own_batches = 4;
  const Range all = part.numbers;
  const layout::Layout& layout = layout_of(part.slices.front());
  const auto ranks_of = [&](std::int64_t tile) {
    std::vector<int> ranks;
    const Range one{tile, tile + 1};
    const layout::Tiles alone = pass.tiles.some(std::span(&one, 1));
    for (int r = queries.owner(alone.query(0, 0)); r < queries.ranks(); ++r)
      if (!runs_in(alone, {queries.begin(r), queries.end(r)}).empty()) ranks.push_back(r);
    return ranks;
  };
  std::int64_t own_work = 0;
  std::vector<std::vector<int>> ranks;
  std::vector<std::int64_t> work;
  for (std::int64_t tile = all.begin; tile < all.end; ++tile) {
    ranks.push_back(ranks_of(tile));
    std::int64_t keys = 1;
    for (const layout::Run& run : layout.runs(0, 0, tile - all.begin)) keys += run.length();
    work.push_back(keys);
    if (ranks.back() == std::vector<int>{rank}) own_work += keys;
  }
  std::int64_t done = 0;
  for (std::int64_t begin = 0, tile = 0; tile < all.count(); ++tile) {
    const auto at = static_cast<std::size_t>(tile);
    const bool own = ranks[at] == std::vector<int>{rank};
    done += own ? work[at] : 0;
    const bool last = tile + 1 == all.count() || ranks[at + 1] != ranks[at];
    const bool full = own && done * own_batches >= own_work;
    if (!last && !full) continue;
    const Range some{all.begin + begin, all.begin + tile + 1};
    part.batches.push_back(
        {passes.build(static_cast<std::size_t>(part.piece.pass), part.sizes(sizes).extent(),
                      pass.tiles.some(std::span(&some, 1)), workers),
         {part.tiles.row(begin, 0), part.tiles.row(tile, 0) + part.tiles.size(tile)},
         ranks[at]});
    begin = tile + 1;
    if (full) done = 0;
  }
}

std::vector<Ranges> keys_of(const Part& part, const Slice& slice, const backend::Sizes& all) {
  return keys_of_tiles(part, slice, all, part.sizes(all).batch, part.tiles.count());
}

std::vector<Ranges> keys_of(const Part& part, const Slice& slice, const backend::Sizes& all,
                            const PassPlan& pass, std::size_t piece) {
  // Leaves that the part has lie entry after entry.
  const Range numbers = part.tree.pieces[piece].leaves;
  const std::int64_t first =
      std::ranges::lower_bound(part.leaves, numbers.begin) - part.leaves.begin();
  const std::int64_t leaves = part.piece.leaves.count();
  const std::int64_t end = first + numbers.count();
  std::vector<Ranges> joined;
  for (std::int64_t at = first; at < end;) {
    const std::int64_t b = at / leaves;
    const std::int64_t stop = std::min(end, (b + 1) * leaves);
    const Range tiles{
        at % leaves * pass.tiles_per_leaf,
        std::min((at % leaves + stop - at) * pass.tiles_per_leaf, part.tiles.count())};
    const bool shares = all.key_batch == 1 && all.batch > 1;
    std::vector<Ranges> some = keys_of_tiles(
        part, slice, all, shares ? Range{b, b + 1} : Range(part.sizes(all).batch), tiles);
    if (joined.empty()) {
      joined = std::move(some);
    } else {
      for (std::size_t list = 0; list < joined.size(); ++list) {
        joined[list].insert(joined[list].end(), some[list].begin(), some[list].end());
        tidy(joined[list]);
      }
    }
    at = stop;
  }
  return joined;
}

}  // namespace treadle::distributed
