// Rows listed, packed and found again.
#include "distributed/query_needs.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "distributed/homes.h"

namespace treadle::distributed {
namespace {

using layout::Range;

Ranges positions_of(std::span<const RowRun> rows) {
  Ranges all;
  for (const RowRun& run : rows) {
    if (run.step == 1) {
      all.emplace_back(run.position, run.position + run.count);
      continue;
    }
    for (std::int64_t i = 0; i < run.count; ++i)
      all.emplace_back(run.position + i * run.step, run.position + i * run.step + 1);
  }
  tidy(all);
  return all;
}

std::int64_t count_of(const Ranges& ranges) {
  std::int64_t count = 0;
  for (const Range& range : ranges) count += range.count();
  return count;
}

// Rows of a part, and where they lie among those of a list.
struct Placed {
  std::int64_t row = 0, at = 0, count = 0;
};

std::vector<Placed> placed(std::span<const RowRun> rows, const Ranges& list) {
  std::vector<std::int64_t> before{0};
  for (const Range& range : list) before.push_back(before.back() + range.count());
  std::vector<Placed> all;
  for (const RowRun& run : rows) {
    // Those of a run without steps lie in one range.
    const std::int64_t together = run.step == 1 ? run.count : 1;
    for (std::int64_t i = 0; i < run.count; i += together) {
      const std::int64_t position = run.position + i * run.step;
      const auto range = std::ranges::upper_bound(list, position, {}, &Range::begin) - 1;
      all.push_back(
          {run.row + i,
           before[static_cast<std::size_t>(range - list.begin())] + position - range->begin,
           together});
    }
  }
  return all;
}

}  // namespace

QueryNeeds::QueryNeeds(const std::vector<PassPlan>& passes, const backend::Sizes& sizes)
    : per_key_head_(sizes.heads / sizes.key_heads) {
  std::vector<layout::Tiles> tiles;
  std::vector<std::int64_t> tiles_per_leaf;
  for (const PassPlan& pass : passes) {
    tiles.push_back(pass.tiles);
    tiles_per_leaf.push_back(pass.tiles_per_leaf);
  }
  tilings_ = tilings_of(tiles, tiles_per_leaf);
  positions_.assign(passes.size(), KeyNeeds(sizes.batch, sizes.key_heads));
}

void QueryNeeds::add(const PartShape& part, std::span<const RowRun> rows) {
  if (part.joins || rows.empty()) return;
  positions_[tilings_[static_cast<std::size_t>(part.piece.pass)]].add(
      part.piece.batch, part.piece.key_heads, positions_of(rows));
}

std::int64_t QueryNeeds::rows() const {
  std::int64_t rows = 0;
  for (const KeyNeeds& needs : positions_) rows += needs.rows();
  return rows * per_key_head_;
}

void QueryNeeds::take(const ConstView& from, std::int64_t first, std::byte*& to) const {
  std::vector<RowRun> runs;
  for (const KeyNeeds& needs : positions_) {
    for (std::int64_t b = 0; b < needs.batch(); ++b) {
      for (std::int64_t h = 0; h < needs.heads(); ++h) {
        runs.clear();
        for (const Range& range : needs.of(b, h))
          runs.push_back({range.begin, 1, range.count(), 0});
        take_rows(from, first, {b, b + 1}, {h * per_key_head_, (h + 1) * per_key_head_}, runs, to);
      }
    }
  }
}

void QueryNeeds::put(const PartShape& part, std::span<const RowRun> rows, const View& packed,
                     const std::byte* from) const {
  if (part.joins || rows.empty()) return;
  const auto element = static_cast<std::int64_t>(size_of(packed.dtype()));
  const std::int64_t bytes = (packed.rank() == 4 ? packed.size(3) : 1) * element;
  const std::size_t tiling = tilings_[static_cast<std::size_t>(part.piece.pass)];
  for (std::size_t before = 0; before < tiling; ++before)
    from += positions_[before].rows() * per_key_head_ * bytes;
  const KeyNeeds& needs = positions_[tiling];
  const Ranges* last = nullptr;
  std::vector<Placed> all;
  for (std::int64_t b = 0; b < needs.batch(); ++b) {
    for (std::int64_t h = 0; h < needs.heads(); ++h) {
      const Ranges& list = needs.of(b, h);
      const std::int64_t of_head = count_of(list) * bytes;
      const Piece& piece = part.piece;
      const bool has = b >= piece.batch.begin && b < piece.batch.end &&
                       h >= piece.key_heads.begin && h < piece.key_heads.end;
      if (has && &list != last) all = placed(rows, list);
      if (has) last = &list;
      for (std::int64_t i = 0; i < per_key_head_; ++i, from += of_head) {
        if (!has) continue;
        const std::int64_t head = (h - piece.key_heads.begin) * per_key_head_ + i;
        std::byte* to =
            static_cast<std::byte*>(packed.data()) +
            ((b - piece.batch.begin) * packed.stride(0) + head * packed.stride(1)) * element;
        for (const Placed& some : all)
          std::memcpy(to + some.row * packed.stride(2) * element, from + some.at * bytes,
                      static_cast<std::size_t>(some.count * bytes));
      }
    }
  }
}

}  // namespace treadle::distributed
