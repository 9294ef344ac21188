// Writes FlexAttention's block lists.
//
// In: a mask or a layout. Out: which blocks are partial and which are full, by query block and by
// key block. Read write_lists() first.
#include "layout/block_lists.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "layout/block_kinds.h"

namespace treadle {

BlockListViews BlockLists::views() const& {
  return {.query_block = query_block,
          .key_block = key_block,
          .kv_num_blocks = kv_num_blocks,
          .kv_indices = kv_indices,
          .full_kv_num_blocks = full_kv_num_blocks,
          .full_kv_indices = full_kv_indices};
}

}  // namespace treadle

namespace treadle::layout {
namespace {

void check_options(const BlockListOptions& options) {
  const auto check = [](std::string_view what, std::int64_t size) {
    if (size < 1) base::fail("block_lists: the {} is {}; it must be at least 1", what, size);
  };
  check("query block", options.query_block);
  check("key block", options.key_block);
}

// Which blocks a pair of tensors lists, and along which axis a list goes.
struct ListLines {
  BlockKind kind;
  std::int64_t rows, columns;              // lists, and blocks that each may name
  std::int64_t row_stride, column_stride;  // in the kinds
};

// As torch.argsort(row == kind, descending=True, stable=True): those of this kind, then the others.
void write_lists(const std::vector<BlockKind>& kinds, const ListLines& lines, std::int32_t* counts,
                 std::int32_t* indices) {
  for (std::int64_t row = 0; row < lines.rows; ++row) {
    const auto is_listed = [&](std::int64_t column) {
      const std::int64_t at = row * lines.row_stride + column * lines.column_stride;
      return kinds[static_cast<std::size_t>(at)] == lines.kind;
    };
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < lines.columns; ++i) count += is_listed(i) ? 1 : 0;
    counts[row] = static_cast<std::int32_t>(count);
    std::int32_t* listed = indices + row * lines.columns;
    std::int32_t* others = listed + count;
    for (std::int64_t i = 0; i < lines.columns; ++i) {
      *(is_listed(i) ? listed : others)++ = static_cast<std::int32_t>(i);
    }
  }
}

// The lists of a grid of blocks; kinds(b, h) are those of one batch and head, row by row.
BlockLists lists_of(
    const Extent& extent, const BlockListOptions& options, const base::Workers& workers,
    const std::function<std::vector<BlockKind>(std::int64_t b, std::int64_t h)>& kinds_of) {
  const std::int64_t rows = blocks_of(extent.queries.count(), options.query_block);
  const std::int64_t columns = blocks_of(extent.keys.count(), options.key_block);
  BlockLists lists{.query_block = options.query_block, .key_block = options.key_block};
  struct Output {
    Tensor& counts;
    Tensor& indices;
    ListLines lines;
  };
  const ListLines partial{BlockKind::partial, rows, columns, columns, 1};
  const ListLines full{BlockKind::full, rows, columns, columns, 1};
  const ListLines partial_by_key{BlockKind::partial, columns, rows, 1, columns};
  const ListLines full_by_key{BlockKind::full, columns, rows, 1, columns};
  const std::vector<Output> outputs{{lists.kv_num_blocks, lists.kv_indices, partial},
                                    {lists.full_kv_num_blocks, lists.full_kv_indices, full},
                                    {lists.q_num_blocks, lists.q_indices, partial_by_key},
                                    {lists.full_q_num_blocks, lists.full_q_indices, full_by_key}};
  for (const Output& out : outputs) {
    out.counts = Tensor(DType::i32, {extent.batch, extent.heads, out.lines.rows});
    out.indices =
        Tensor(DType::i32, {extent.batch, extent.heads, out.lines.rows, out.lines.columns});
  }
  base::parallel_for(workers, extent.batch * extent.heads, [&](std::int64_t i) {
    const std::vector<BlockKind> kinds = kinds_of(i / extent.heads, i % extent.heads);
    for (const Output& out : outputs) {
      write_lists(kinds, out.lines, out.counts.data<std::int32_t>().data() + i * out.lines.rows,
                  out.indices.data<std::int32_t>().data() + i * rows * columns);
    }
  });
  return lists;
}

// Every query of a block must have the same list, and the list whole blocks of one kind.
void check_whole_blocks(const Selection& listed, const BlockListOptions& options) {
  const Extent& extent = listed.extent();
  const std::int64_t queries = extent.queries.count();
  const std::int64_t keys = extent.keys.count();
  const auto is_border = [&](std::int64_t key) {
    return key % options.key_block == 0 || key == keys;
  };
  for (std::int64_t b = 0; b < (listed.per_batch() ? extent.batch : 1); ++b) {
    for (std::int64_t h = 0; h < (listed.per_head() ? extent.heads : 1); ++h) {
      for (std::int64_t i = 0; i < listed.query_blocks(); ++i) {
        const auto runs = listed.runs(b, h, i);
        for_each_piece(runs, [&](Range piece, bool) {
          if (is_border(piece.begin) && is_border(piece.end)) return;
          base::fail(
              "block_lists: batch {}, head {}, query block {} of the layout lists keys {} up to "
              "{}; "
              "blocks of {} keys cannot say so",
              b, h, i, piece.begin, piece.end, options.key_block);
        });
        const std::int64_t next = (i + 1) * listed.query_block();
        if (next >= queries || next % options.query_block == 0) continue;
        if (!std::ranges::equal(runs, listed.runs(b, h, i + 1))) {
          base::fail(
              "block_lists: batch {}, head {}: queries {} and {} of the layout have different "
              "lists; blocks of {} queries cannot say so",
              b, h, next - 1, next, options.query_block);
        }
      }
    }
  }
}

}  // namespace

BlockLists to_block_lists(const Mask& mask, const Extent& extent, const BlockListOptions& options,
                          const base::Workers& workers) {
  check_options(options);
  const Layout layout =
      build(mask, extent, Tiles({}, extent.queries, options.query_block), workers);
  return to_block_lists(std::vector{&layout}, nullptr, options, workers);
}

BlockLists to_block_lists(std::span<const Layout* const> passes, const Selection* listed,
                          const BlockListOptions& options, const base::Workers& workers) {
  check_options(options);
  if (listed != nullptr) check_whole_blocks(*listed, options);
  const BlockShape block{options.query_block, options.key_block};
  const Tails tails = options.tails_partial ? Tails::hidden : Tails::cut;
  return lists_of(passes.front()->extent(), options, workers, [&](std::int64_t b, std::int64_t h) {
    std::vector<BlockKind> kinds = block_kinds(*passes.front(), b, h, block, tails);
    for (const Layout* pass : passes.subspan(1)) {
      std::ranges::transform(kinds, block_kinds(*pass, b, h, block, tails), kinds.begin(),
                             [](BlockKind one, BlockKind other) { return std::max(one, other); });
    }
    return kinds;
  });
}

}  // namespace treadle::layout
