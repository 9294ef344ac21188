// Turns lists of keys or key blocks into a Selection that later stages need not doubt.
//
// In: arrays of lists, as the caller has them. Out: for each list, ascending runs of keys. Read
// select() first.
#include "layout/selection.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/error.h"
#include "layout/block_kinds.h"
#include "layout/first_error.h"
#include "layout/integer_lists.h"

namespace treadle::layout {
namespace {

constexpr const char* call = "layout";

// Lists as they were given. Entries of `full`, where there are any, skip the mask.
struct Given {
  std::int64_t query_block, key_block;
  const IntegerLists& partial;
  const IntegerLists* full = nullptr;
};

struct Entry {
  std::int64_t block;
  bool full;

  auto operator<=>(const Entry&) const = default;
};

std::string name_of_entry(const Given& given, std::int64_t entry) {
  return fmt::format("key {}{}", given.key_block == 1 ? "" : "block ", entry);
}

void check_block(std::string_view what, std::int64_t size) {
  if (size < 1) base::fail("{}: the {} is {}; it must be at least 1", call, what, size);
}

// Entries must exist.
void read(std::vector<Entry>& entries, const Given& given, const IntegerLists& lists, bool full,
          const Extent& extent, std::int64_t b, std::int64_t h, std::int64_t row) {
  const std::int64_t keys = extent.keys.count();
  const std::int64_t blocks = blocks_of(keys, given.key_block);
  for (const std::int64_t block : lists.read(b, h, row)) {
    if (block < 0 || block >= blocks) {
      const std::string rule = given.key_block == 1 ? fmt::format("there are {} keys", keys)
                                                    : fmt::format("{} keys in blocks of {} make {}",
                                                                  keys, given.key_block, blocks);
      base::fail("{}: {} lists {} for {}; {}{}", call, lists.what(), name_of_entry(given, block),
                 lists.place(b, h, row), rule,
                 block < 0 && !lists.has_counts() ? ". Lists that are filled up need counts" : "");
    }
    entries.push_back({block, full});
  }
}

std::vector<Run> runs_of(const Given& given, const Extent& extent, std::int64_t b, std::int64_t h,
                         std::int64_t row) {
  std::vector<Entry> entries;
  read(entries, given, given.partial, false, extent, b, h, row);
  if (given.full) read(entries, given, *given.full, true, extent, b, h, row);
  std::ranges::sort(entries);
  std::vector<Run> runs;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto [block, full] = entries[i];
    if (i > 0 && entries[i - 1].block == block) {
      const IntegerLists& lists = full ? *given.full : given.partial;
      const bool both = entries[i - 1].full != full;
      base::fail("{}: {} list{} {} {} for {}; it may be listed once", call,
                 both ? given.partial.what() + " and " + lists.what() : lists.what(),
                 both ? "" : "s", name_of_entry(given, block), both ? "both" : "twice",
                 lists.place(b, h, row));
    }
    append(runs, block * given.key_block,
           std::min((block + 1) * given.key_block, extent.keys.count()), full);
  }
  return runs;
}

// The lists of the result are those of both arrays: along each axis as many as the finer one has.
Selection select(const Given& given, const Extent& extent, const base::Workers& workers) {
  std::int64_t batches = given.partial.batch_lists();
  std::int64_t heads = given.partial.head_lists();
  if (given.full) {
    batches = std::max(batches, given.full->batch_lists());
    heads = std::max(heads, given.full->head_lists());
  }
  const std::int64_t rows = blocks_of(extent.queries.count(), given.query_block);
  std::vector<std::vector<Run>> lists(static_cast<std::size_t>(batches * heads * rows));
  parallel_for_first_error(workers, batches * heads * rows, [&](std::int64_t i) {
    const std::int64_t h = i / rows % heads * (extent.heads / heads);
    lists[static_cast<std::size_t>(i)] = runs_of(given, extent, i / rows / heads, h, i % rows);
  });
  return {extent, given.query_block, batches, heads, lists};
}

ListShape shape_of(const Extent& extent, std::int64_t key_heads, std::int64_t query_block) {
  return {.batch = extent.batch,
          .heads = extent.heads,
          .key_heads = key_heads,
          .rows = blocks_of(extent.queries.count(), query_block)};
}

}  // namespace

Selection::Selection(const Extent& extent, std::int64_t query_block, std::int64_t batch_lists,
                     std::int64_t head_lists, const std::vector<std::vector<Run>>& lists)
    : extent_(extent),
      query_block_(query_block),
      batch_lists_(batch_lists),
      head_lists_(head_lists) {
  check_extent(extent);
  if (extent.queries.begin != 0 || extent.keys.begin != 0) {
    base::fail("{}: queries from {} and keys from {}; lists count from position 0", call,
               extent.queries.begin, extent.keys.begin);
  }
  if (static_cast<std::int64_t>(lists.size()) != batch_lists * head_lists * query_blocks()) {
    base::internal_error("selection: {} lists for {} x {} x {}", lists.size(), batch_lists,
                         head_lists, query_blocks());
  }
  offsets_.push_back(0);
  for (const auto& list : lists) offsets_.push_back(offsets_.back() + list.size());
  runs_.reserve(offsets_.back());
  for (const auto& list : lists) runs_.insert(runs_.end(), list.begin(), list.end());
}

std::int64_t Selection::query_blocks() const {
  return blocks_of(extent_.queries.count(), query_block_);
}

std::span<const Run> Selection::runs(std::int64_t b, std::int64_t h,
                                     std::int64_t query_block) const {
  const std::int64_t batch = batch_lists_ == 1 ? 0 : b;
  const std::int64_t head = h / (extent_.heads / head_lists_);
  const auto list =
      static_cast<std::size_t>((batch * head_lists_ + head) * query_blocks() + query_block);
  return std::span(runs_).subspan(offsets_[list], offsets_[list + 1] - offsets_[list]);
}

Selection select_keys(const KeyLists& lists, const Extent& extent, std::int64_t key_heads,
                      const base::Workers& workers) {
  check_extent(extent);
  check_block("query block", lists.query_block);
  check_block("key block", lists.key_block);
  const IntegerLists indices(call, "indices", lists.indices, lists.counts,
                             shape_of(extent, key_heads, lists.query_block));
  return select({lists.query_block, lists.key_block, indices}, extent, workers);
}

Selection select_blocks(const BlockListViews& lists, const Extent& extent, std::int64_t key_heads,
                        const base::Workers& workers) {
  check_extent(extent);
  check_block("query block", lists.query_block);
  check_block("key block", lists.key_block);
  if (lists.full_kv_num_blocks.has_value() != lists.full_kv_indices.has_value()) {
    base::fail("{}: full_kv_{} is given without full_kv_{}; they go together", call,
               lists.full_kv_indices ? "indices" : "num_blocks",
               lists.full_kv_indices ? "num_blocks" : "indices");
  }
  const ListShape shape = shape_of(extent, key_heads, lists.query_block);
  const IntegerLists partial(call, "kv_indices", lists.kv_indices, lists.kv_num_blocks, shape);
  std::optional<IntegerLists> full;
  if (lists.full_kv_indices) {
    full.emplace(call, "full_kv_indices", *lists.full_kv_indices, lists.full_kv_num_blocks, shape);
  }
  return select({lists.query_block, lists.key_block, partial, full ? &*full : nullptr}, extent,
                workers);
}

Tiles tiles_for(const Selection& selection, const TileWeights& weights) {
  return {{.kind = Order::Kind::blocks, .modulus = selection.query_block()},
          selection.extent().queries,
          best_height(selection.query_block(), weights)};
}

}  // namespace treadle::layout
