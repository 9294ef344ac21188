// Checks block layouts and writes them in blocksparse's forms and as a mask.
//
// In: which blocks are present, and a mask inside them. Out: lookup tables, packed words, a
// MaskMod.
#include "treadle/block_layout.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/at.h"
#include "base/element.h"
#include "base/error.h"
#include "patterns/owned_capture.h"

namespace treadle {
namespace {

using base::at;
using base::fail;

std::int64_t blocks_per_layout(const BlockLayout& layout) {
  return layout.query_blocks * layout.key_blocks;
}

void check_sizes(const BlockLayout& layout) {
  constexpr std::array<std::int64_t, 4> sizes{8, 16, 32, 64};
  if (std::ranges::find(sizes, layout.block_size) == sizes.end()) {
    fail("block layout: blocks have {} queries and keys; it must be 8, 16, 32 or 64",
         layout.block_size);
  }
  if (layout.query_blocks < 0 || layout.key_blocks < 0) {
    fail("block layout: {} x {} blocks; both must be at least 0", layout.query_blocks,
         layout.key_blocks);
  }
  if (layout.heads < 1) {
    fail("block layout: {} heads; a layout that all heads share must say how many there are",
         layout.heads);
  }
  if (layout.lut_heads != 1 && layout.lut_heads != layout.heads) {
    fail("block layout: {} layouts for {} heads; there must be one, or one per head",
         layout.lut_heads, layout.heads);
  }
  const auto size = static_cast<std::int64_t>(layout.present.size());
  if (size != layout.lut_heads * blocks_per_layout(layout)) {
    fail("block layout: present has {} elements; {} x {} x {} are needed", size, layout.lut_heads,
         layout.query_blocks, layout.key_blocks);
  }
}

std::int64_t count_present(const BlockLayout& layout, std::int64_t head) {
  const auto begin = layout.present.begin() + head * blocks_per_layout(layout);
  return std::count_if(begin, begin + blocks_per_layout(layout),
                       [](std::uint8_t present) { return present != 0; });
}

// Calls visit(cell) for each block that is present, in the order of their numbers, with row and
// column 0.
template <class Visit>
void for_each_block(const BlockLayout& layout, Visit visit) {
  auto present = layout.present.begin();
  for (std::int64_t head = 0; head < layout.lut_heads; ++head) {
    std::int64_t block = 0;
    for (std::int64_t query = 0; query < layout.query_blocks; ++query) {
      for (std::int64_t key = 0; key < layout.key_blocks; ++key) {
        if (*present++ == 0) continue;
        visit(BlockCell{.head = head, .query_block = query, .key_block = key, .block = block++});
      }
    }
  }
}

// One table of rows and what they hold. add() is called with rows of one head ascending in block.
class RowTable {
 public:
  RowTable(std::int64_t heads, std::int64_t rows, std::int64_t blocks)
      : rows_(rows), members_(at(heads * rows)), table_(DType::i32, {heads, rows + blocks, 2}) {}

  void add(std::int64_t head, std::int64_t row, std::int64_t block, std::int64_t other) {
    members_[at(head * rows_ + row)].emplace_back(block, other);
  }

  [[nodiscard]] std::int64_t longest() const {
    std::size_t most = 0;
    for (const auto& row : members_) most = std::max(most, row.size());
    return static_cast<std::int64_t>(most);
  }

  Tensor finish() {
    for (std::int64_t head = 0; head < table_.size(0); ++head) {
      std::int64_t next = rows_;
      for (std::int64_t row = 0; row < rows_; ++row) {
        const auto& members = members_[at(head * rows_ + row)];
        set(head, row, next, static_cast<std::int64_t>(members.size()));
        for (const auto& [block, other] : members) set(head, next++, block, other);
      }
    }
    return std::move(table_);
  }

 private:
  void set(std::int64_t head, std::int64_t line, std::int64_t first, std::int64_t second) {
    table_.at<std::int32_t>({head, line, 0}) = static_cast<std::int32_t>(first);
    table_.at<std::int32_t>({head, line, 1}) = static_cast<std::int32_t>(second);
  }

  std::int64_t rows_;
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> members_;  // by head and row
  Tensor table_;
};

}  // namespace

void BlockLayout::check() const {
  check_sizes(*this);
  const std::int64_t blocks = count_present(*this, 0);
  for (std::int64_t head = 1; head < lut_heads; ++head) {
    const std::int64_t here = count_present(*this, head);
    if (here != blocks) {
      fail("block layout: head 0 has {} blocks, head {} has {}; they must be equal", blocks, head,
           here);
    }
  }
  if (blocks > std::numeric_limits<std::int32_t>::max()) {
    fail("block layout: {} blocks; their numbers must fit 32 bits", blocks);
  }
}

std::int64_t BlockLayout::block_count() const {
  check();
  return count_present(*this, 0);
}

std::vector<std::int32_t> BlockLayout::block_numbers() const {
  check();
  std::vector<std::int32_t> numbers(present.size(), -1);
  for_each_block(*this, [&](const BlockCell& cell) {
    const std::int64_t row = cell.head * query_blocks + cell.query_block;
    numbers[at(row * key_blocks + cell.key_block)] = static_cast<std::int32_t>(cell.block);
  });
  return numbers;
}

BlockLayout block_layout(const ConstView& present, const BlockOptions& options) {
  const int rank = present.rank();
  if (rank != 2 && rank != 3) {
    fail(
        "block layout: the array has shape {}; it must be [query blocks, key blocks] or [heads, "
        "query blocks, key blocks]",
        to_string(present.shape()));
  }
  if (rank == 2 && options.heads < 1) {
    fail("block layout: {} heads; a layout that all heads share must say how many there are",
         options.heads);
  }
  BlockLayout layout{.block_size = options.block_size,
                     .heads = options.heads,
                     .lut_heads = rank == 2 ? 1 : present.size(0),
                     .query_blocks = present.size(rank - 2),
                     .key_blocks = present.size(rank - 1),
                     .mask = options.mask};
  if (layout.heads == 0) layout.heads = layout.lut_heads;
  for (std::int64_t head = 0; head < layout.lut_heads; ++head) {
    for (std::int64_t query = 0; query < layout.query_blocks; ++query) {
      for (std::int64_t key = 0; key < layout.key_blocks; ++key) {
        const std::int64_t offset = (rank == 2 ? 0 : head * present.stride(0)) +
                                    query * present.stride(rank - 2) +
                                    key * present.stride(rank - 1);
        const std::int64_t value = base::load_int(present.data(), present.dtype(), offset);
        layout.present.push_back(value != 0 ? 1 : 0);
      }
    }
  }
  layout.check();
  return layout;
}

BlockTables block_tables(const BlockLayout& layout) {
  const std::int64_t blocks = layout.block_count();
  Tensor nt(DType::i32, {layout.lut_heads, blocks, 2});
  RowTable rows(layout.lut_heads, layout.query_blocks, blocks);
  RowTable columns(layout.lut_heads, layout.key_blocks, blocks);
  for_each_block(layout, [&](const BlockCell& cell) {
    nt.at<std::int32_t>({cell.head, cell.block, 0}) = static_cast<std::int32_t>(cell.query_block);
    nt.at<std::int32_t>({cell.head, cell.block, 1}) = static_cast<std::int32_t>(cell.key_block);
    rows.add(cell.head, cell.query_block, cell.block, cell.key_block);
    columns.add(cell.head, cell.key_block, cell.block, cell.query_block);
  });
  BlockTables tables;
  tables.nn_max = rows.longest();
  tables.tn_max = columns.longest();
  tables.nt = std::move(nt);
  tables.nn = rows.finish();
  tables.tn = columns.finish();
  return tables;
}

std::vector<std::uint64_t> mask_words(const BlockLayout& layout) {
  layout.check();
  std::vector<std::uint64_t> words;
  for_each_block(layout, [&](BlockCell cell) {
    for (cell.row = 0; cell.row < layout.block_size; ++cell.row) {
      std::uint64_t word = 0;
      for (cell.column = 0; cell.column < layout.block_size; ++cell.column) {
        const bool visible = !layout.mask || layout.mask(cell);
        word |= static_cast<std::uint64_t>(visible) << cell.column;
      }
      words.push_back(word);
    }
  });
  return words;
}

MaskMod to_mask(const BlockLayout& layout) {
  const std::int64_t size = layout.block_size;
  const std::int64_t blocks = layout.block_count();
  const bool shared = layout.lut_heads == 1;
  const Capture numbers = patterns::owned<std::int32_t>(
      layout.block_numbers(), {layout.lut_heads, layout.query_blocks, layout.key_blocks});
  const auto number_of = [=](const Index& h, const Index& q, const Index& kv) {
    const Index query_block = floor_div(q, size);
    const Index key_block = floor_div(kv, size);
    return shared ? numbers(0, query_block, key_block) : numbers(h, query_block, key_block);
  };
  if (!layout.mask || blocks == 0) {
    return [=](Index, Index h, Index q, Index kv) { return number_of(h, q, kv) >= 0; };
  }

  std::vector<std::int64_t> bits;
  for (const std::uint64_t word : mask_words(layout)) {
    bits.push_back(std::bit_cast<std::int64_t>(word));
  }
  const Capture words = patterns::owned<std::int64_t>(bits, {layout.lut_heads, blocks, size});
  return [=](Index, Index h, Index q, Index kv) {
    const Value number = number_of(h, q, kv);
    // Block 0 stands in for a block that is absent: then every read is inside its table, which
    // analysis can prove.
    const Value block = max(number, 0);
    const Value word = shared ? words(0, block, q % size) : words(h, block, q % size);
    return number >= 0 && ((word >> (kv % size)) & 1) == 1;
  };
}

}  // namespace treadle
