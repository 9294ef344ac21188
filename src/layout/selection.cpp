// In: lists of keys per block of queries; out: sorted stretches that later stages need not doubt.
#include "layout/selection.h"

#include <algorithm>

#include "base/error.h"
#include "layout/integer_lists.h"

namespace treadle::layout {

Selection::Selection(Extent extent, std::int64_t query_block, bool per_batch, bool per_head,
                     std::vector<std::vector<Stretch>> stretches)
    : extent_(extent),
      query_block_(query_block),
      per_batch_(per_batch),
      per_head_(per_head),
      stretches_(std::move(stretches)) {
  check_extent(extent);
  if (extent.queries.begin != 0 || extent.keys.begin != 0) {
    base::fail("selection: queries from {} and keys from {}; lists count from position 0",
               extent.queries.begin, extent.keys.begin);
  }
  if (query_block < 1)
    base::fail("selection: query blocks of {}; they hold at least 1 query", query_block);
  const std::int64_t lists =
      (per_batch ? extent.batch : 1) * (per_head ? extent.heads : 1) * query_blocks();
  if (static_cast<std::int64_t>(stretches_.size()) != lists) {
    base::fail("selection: {} lists given; {} batches, {} heads and {} query blocks need {}",
               stretches_.size(), per_batch ? extent.batch : 1, per_head ? extent.heads : 1,
               query_blocks(), lists);
  }
  for (auto& list : stretches_) {
    std::ranges::sort(list, {}, &Stretch::begin);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Stretch& s = list[i];
      if (s.begin < 0 || s.begin >= s.end || s.end > extent.keys.count()) {
        base::fail("selection: keys {} up to {} are selected; there are {}", s.begin, s.end,
                   extent.keys.count());
      }
      if (i > 0 && s.begin < list[i - 1].end)
        base::fail("selection: key {} is selected twice", s.begin);
    }
  }
}

std::span<const Stretch> Selection::stretches(std::int64_t b, std::int64_t h,
                                              std::int64_t query_block) const {
  const std::int64_t heads = per_head_ ? extent_.heads : 1;
  const std::int64_t list =
      ((per_batch_ ? b : 0) * heads + (per_head_ ? h : 0)) * query_blocks() + query_block;
  return stretches_[static_cast<std::size_t>(list)];
}

Selection select_blocks(Extent extent, std::int64_t query_block, std::int64_t key_block,
                        bool per_batch, bool per_head,
                        const std::vector<std::vector<std::int64_t>>& lists) {
  if (key_block < 1) base::fail("selection: key blocks of {}; they hold at least 1 key", key_block);
  const std::int64_t blocks = (extent.keys.count() + key_block - 1) / key_block;
  std::vector<std::vector<Stretch>> stretches(lists.size());
  for (std::size_t i = 0; i < lists.size(); ++i) {
    for (const std::int64_t block : lists[i]) {
      if (block < 0 || block >= blocks) {
        base::fail("selection: key block {} is selected; {} keys in blocks of {} make {} blocks",
                   block, extent.keys.count(), key_block, blocks);
      }
      stretches[i].push_back(
          {block * key_block, std::min((block + 1) * key_block, extent.keys.count()), false});
    }
  }
  return {extent, query_block, per_batch, per_head, std::move(stretches)};
}

Selection select_tokens(const Extent& extent, std::int64_t query_block, const ConstView& tokens,
                        const std::optional<ConstView>& counts) {
  check_extent(extent);
  if (query_block < 1)
    base::fail("selection: query blocks of {}; they hold at least 1 query", query_block);
  const std::int64_t rows = (extent.queries.count() + query_block - 1) / query_block;
  const IntegerLists lists("selection", "tokens", tokens, counts, extent, rows);
  std::vector<std::vector<Stretch>> stretches;
  for (std::int64_t b = 0; b < (lists.per_batch() ? extent.batch : 1); ++b) {
    for (std::int64_t h = 0; h < (lists.per_head() ? extent.heads : 1); ++h) {
      for (std::int64_t row = 0; row < rows; ++row) {
        std::vector<std::int64_t> keys = lists.read(b, h, row);
        std::ranges::sort(keys);
        auto& list = stretches.emplace_back();
        for (const std::int64_t key : keys) {
          if (key < 0 || key >= extent.keys.count()) {
            base::fail("selection: {}: key {} is selected; there are {}{}", place_of(b, h, row),
                       key, extent.keys.count(),
                       key < 0 && !counts ? ". Lists that are filled up need counts" : "");
          }
          if (list.empty() || list.back().end < key) {
            list.push_back({key, key + 1, false});
          } else if (list.back().end == key) {
            ++list.back().end;
          } else {
            base::fail("selection: {}: key {} is selected twice", place_of(b, h, row), key);
          }
        }
      }
    }
  }
  return {extent, query_block, lists.per_batch(), lists.per_head(), std::move(stretches)};
}

}  // namespace treadle::layout
