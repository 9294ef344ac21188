// In: FlexAttention's lists, or a mask; out: a Selection, or lists. Read
// write_lists for the way out.
#include "layout/block_lists.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "layout/block_kinds.h"
#include "layout/check.h"
#include "layout/integer_lists.h"

namespace treadle::layout {
namespace {

// --- in -----------------------------------------------------------------------------------------

// Adds the blocks of one list to a row. `listed` is, for each key block, how the row lists it.
void add_blocks(const std::vector<std::int64_t>& numbers, BlockKind kind,
                const BlockListViews& lists, std::int64_t keys, const std::string& place,
                std::vector<BlockKind>& listed, std::vector<Stretch>& row) {
  const auto blocks = static_cast<std::int64_t>(listed.size());
  const std::string_view name = kind == BlockKind::full ? "full_kv_indices" : "kv_indices";
  for (const std::int64_t block : numbers) {
    if (block < 0 || block >= blocks) {
      base::fail("block lists: {}: {} names key block {}; {} keys in blocks of {} make {} blocks",
                 place, name, block, keys, lists.key_block, blocks);
    }
    BlockKind& before = listed[static_cast<std::size_t>(block)];
    if (before == kind) {
      base::fail("block lists: {}: {} names key block {} twice", place, name, block);
    }
    if (before != BlockKind::empty) {
      base::fail("block lists: {}: key block {} is listed as partial and as full", place, block);
    }
    before = kind;
    row.push_back({.begin = block * lists.key_block,
                   .end = std::min((block + 1) * lists.key_block, keys),
                   .skip_mask = kind == BlockKind::full});
  }
}

// --- out ----------------------------------------------------------------------------------------

// Which blocks a pair of tensors lists, and along which axis a list goes.
struct ListShape {
  BlockKind kind;
  std::int64_t rows, columns;              // lists, and blocks that each may name
  std::int64_t row_stride, column_stride;  // in the kinds
};

// As torch.argsort(row == kind, descending=True, stable=True): those of this kind, then the others.
void write_lists(const std::vector<BlockKind>& kinds, const ListShape& shape, std::int32_t* counts,
                 std::int32_t* indices) {
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    const auto is_listed = [&](std::int64_t column) {
      const std::int64_t at = row * shape.row_stride + column * shape.column_stride;
      return kinds[static_cast<std::size_t>(at)] == shape.kind;
    };
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < shape.columns; ++i) count += is_listed(i) ? 1 : 0;
    counts[row] = static_cast<std::int32_t>(count);
    std::int32_t* listed = indices + row * shape.columns;
    std::int32_t* others = listed + count;
    for (std::int64_t i = 0; i < shape.columns; ++i) {
      *(is_listed(i) ? listed : others)++ = static_cast<std::int32_t>(i);
    }
  }
}

}  // namespace

Selection from_block_lists(const BlockListViews& lists, const Extent& extent) {
  check_extent(extent);
  check_at_least("block lists", "query block", lists.query_block, 1);
  check_at_least("block lists", "key block", lists.key_block, 1);
  if (lists.full_kv_num_blocks.has_value() != lists.full_kv_indices.has_value()) {
    base::fail("block lists: full_kv_{} is given without full_kv_{}; they belong together",
               lists.full_kv_indices ? "indices" : "num_blocks",
               lists.full_kv_indices ? "num_blocks" : "indices");
  }
  const std::int64_t rows = blocks_of(extent.queries.count(), lists.query_block);
  const IntegerLists partial("block lists", "kv_indices", lists.kv_indices, lists.kv_num_blocks,
                             extent, rows);
  std::optional<IntegerLists> full;
  if (lists.full_kv_indices) {
    full.emplace("block lists", "full_kv_indices", *lists.full_kv_indices, lists.full_kv_num_blocks,
                 extent, rows);
  }

  const bool per_batch = partial.per_batch() || (full && full->per_batch());
  const bool per_head = partial.per_head() || (full && full->per_head());
  const auto width = static_cast<std::size_t>(blocks_of(extent.keys.count(), lists.key_block));
  std::vector<std::vector<Stretch>> stretches;
  for (std::int64_t b = 0; b < (per_batch ? extent.batch : 1); ++b) {
    for (std::int64_t h = 0; h < (per_head ? extent.heads : 1); ++h) {
      for (std::int64_t row = 0; row < rows; ++row) {
        std::vector<BlockKind> listed(width, BlockKind::empty);
        auto& here = stretches.emplace_back();
        const auto add = [&](const IntegerLists& from, BlockKind kind) {
          add_blocks(from.read(b, h, row), kind, lists, extent.keys.count(), place_of(b, h, row),
                     listed, here);
        };
        add(partial, BlockKind::partial);
        if (full) add(*full, BlockKind::full);
      }
    }
  }
  return {extent, lists.query_block, per_batch, per_head, std::move(stretches)};
}

BlockListViews BlockLists::views() const& {
  return {.query_block = query_block,
          .key_block = key_block,
          .kv_num_blocks = kv_num_blocks,
          .kv_indices = kv_indices,
          .full_kv_num_blocks = full_kv_num_blocks,
          .full_kv_indices = full_kv_indices};
}

BlockLists to_block_lists(const Mask& mask, const Extent& extent, const BlockListOptions& options,
                          Executor& executor) {
  check_at_least("block lists", "query block", options.query_block, 1);
  check_at_least("block lists", "key block", options.key_block, 1);
  const Layout layout =
      build(mask, extent, Tiles({}, extent.queries, options.query_block), executor);
  const std::int64_t rows = layout.tiles().count();
  const std::int64_t columns = blocks_of(extent.keys.count(), options.key_block);

  BlockLists lists{.query_block = options.query_block, .key_block = options.key_block};
  struct Output {
    Tensor& counts;
    Tensor& indices;
    ListShape shape;
  };
  const std::vector<Output> outputs{
      {lists.kv_num_blocks, lists.kv_indices, {BlockKind::partial, rows, columns, columns, 1}},
      {lists.full_kv_num_blocks,
       lists.full_kv_indices,
       {BlockKind::full, rows, columns, columns, 1}},
      {lists.q_num_blocks, lists.q_indices, {BlockKind::partial, columns, rows, 1, columns}},
      {lists.full_q_num_blocks,
       lists.full_q_indices,
       {BlockKind::full, columns, rows, 1, columns}}};
  for (const Output& out : outputs) {
    out.counts = Tensor(DType::i32, {extent.batch, extent.heads, out.shape.rows});
    out.indices =
        Tensor(DType::i32, {extent.batch, extent.heads, out.shape.rows, out.shape.columns});
  }
  base::parallel_for(executor, extent.batch * extent.heads, [&](std::int64_t i) {
    const auto kinds = block_kinds(layout, i / extent.heads, i % extent.heads, options.key_block,
                                   options.tails_partial ? Tails::hidden : Tails::cut);
    for (const Output& out : outputs) {
      write_lists(kinds, out.shape, out.counts.data<std::int32_t>().data() + i * out.shape.rows,
                  out.indices.data<std::int32_t>().data() + i * rows * columns);
    }
  });
  return lists;
}

}  // namespace treadle::layout
