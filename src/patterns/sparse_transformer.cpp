// Makes the patterns of the Sparse Transformer: all, local, strided, fixed.
//
// In: their parameters. Out: the mask over positions, and the layout of blocks.
#include "treadle/sparse_transformer.h"

#include "base/error.h"
#include "patterns/check_parameters.h"
#include "treadle/mods.h"
#include "treadle/patterns.h"

namespace treadle::patterns {
namespace {

using base::fail;

// Causal inside the blocks on the diagonal; blocks before them are full.
bool on_or_below_diagonal(const BlockCell& cell) {
  return cell.query_block != cell.key_block || cell.column <= cell.row;
}

// present(head, query block, key block) says which blocks there are.
template <class Present>
BlockLayout square_layout(std::int64_t length, const Blocks& blocks, std::int64_t lut_heads,
                          Present present, BlockMask mask) {
  const std::int64_t count = length / blocks.size;
  BlockLayout layout{.block_size = blocks.size,
                     .heads = blocks.heads,
                     .lut_heads = lut_heads,
                     .query_blocks = count,
                     .key_blocks = count,
                     .mask = std::move(mask)};
  for (std::int64_t head = 0; head < lut_heads; ++head) {
    for (std::int64_t query = 0; query < count; ++query) {
      for (std::int64_t key = 0; key < count; ++key) {
        layout.present.push_back(key <= query && present(head, query, key) ? 1 : 0);
      }
    }
  }
  return layout;
}

void check_blocks(std::string_view call, std::int64_t length, const Blocks& blocks) {
  check_at_least(call, "block size", blocks.size, 1);
  check_at_least(call, "number of heads", blocks.heads, 1);
  check_at_least(call, "length", length, 0);
  check_multiple(call, "length", length, "block size", blocks.size);
}

// Blocks in a window of fixed().
std::int64_t window_blocks(std::string_view call, const Fixed& pattern, const Blocks& blocks) {
  check_at_least(call, "block size", blocks.size, 1);
  check_at_least(call, "number of heads", blocks.heads, 1);
  check_at_least(call, "window", pattern.window, 1);
  check_at_least(call, "num_verts", pattern.num_verts, 1);
  check_at_least(call, "vertsize", pattern.vertsize, 1);
  check_multiple(call, "number of heads", blocks.heads, "num_verts", pattern.num_verts);
  const std::int64_t count = pattern.window / blocks.size;
  if (pattern.vertsize > count) {
    fail("{}: vertsize is {}; a window of {} has {} blocks of {}, vertsize must be at most that",
         call, pattern.vertsize, pattern.window, count, blocks.size);
  }
  check_multiple(call, "number of blocks in a window", count, "vertsize", pattern.vertsize);
  if (pattern.num_verts > count / pattern.vertsize) {
    fail(
        "{}: num_verts is {}; {} blocks in a window make {} groups of {}, num_verts must be at "
        "most that",
        call, pattern.num_verts, count, count / pattern.vertsize, pattern.vertsize);
  }
  return count;
}

}  // namespace

MaskMod all() { return mods::causal(); }

BlockLayout all_layout(std::int64_t length, const Blocks& blocks) {
  check_blocks("all_layout", length, blocks);
  const auto every = [](std::int64_t, std::int64_t, std::int64_t) { return true; };
  return square_layout(length, blocks, 1, every, on_or_below_diagonal);
}

MaskMod local(const Local& pattern) {
  check_at_least("local", "window", pattern.window, 1);
  return sliding_window({.window = pattern.window});
}

BlockLayout local_layout(const Local& pattern, std::int64_t length, const Blocks& blocks) {
  check_blocks("local_layout", length, blocks);
  check_at_least("local_layout", "window", pattern.window, 1);
  check_multiple("local_layout", "window", pattern.window, "block size", blocks.size);
  const std::int64_t window = pattern.window;
  const std::int64_t size = blocks.size;
  // The first query of a block still sees keys of the block that lies a whole window back.
  const auto near = [=](std::int64_t, std::int64_t query, std::int64_t key) {
    return query - key <= window / size;
  };
  return square_layout(length, blocks, 1, near, [=](const BlockCell& cell) {
    const std::int64_t q = cell.query_block * size + cell.row;
    const std::int64_t kv = cell.key_block * size + cell.column;
    return kv <= q && q - kv < window;
  });
}

MaskMod strided(const Strided& pattern) {
  check_at_least("strided", "stride", pattern.stride, 1);
  return mods::causal() & mods::dilated(pattern.stride);
}

BlockLayout strided_layout(const Strided& pattern, std::int64_t length, const Blocks& blocks) {
  check_blocks("strided_layout", length, blocks);
  check_at_least("strided_layout", "stride", pattern.stride, 1);
  check_multiple("strided_layout", "length", length, "stride", pattern.stride);
  const std::int64_t run = length / pattern.stride;
  check_multiple("strided_layout", "length / stride", run, "block size", blocks.size);
  // One run of positions per residue, and causal inside it.
  const auto same_run = [per_run = run / blocks.size](std::int64_t, std::int64_t query,
                                                      std::int64_t key) {
    return query / per_run == key / per_run;
  };
  return square_layout(length, blocks, 1, same_run, on_or_below_diagonal);
}

MaskMod fixed(const Fixed& pattern, const Blocks& blocks) {
  const std::int64_t window = window_blocks("fixed", pattern, blocks) * blocks.size;
  const std::int64_t summary = pattern.vertsize * blocks.size;
  const std::int64_t groups = pattern.num_verts;
  return [=](Index, Index h, Index q, Index kv) {
    const Index group = floor_div(window - 1 - kv % window, summary);
    const Bool seen_by_all = groups == 1 ? group == 0 : group == h % groups;
    return q >= kv && (floor_div(kv, window) == floor_div(q, window) || seen_by_all);
  };
}

BlockLayout fixed_layout(const Fixed& pattern, std::int64_t length, const Blocks& blocks) {
  check_blocks("fixed_layout", length, blocks);
  const std::int64_t window = window_blocks("fixed_layout", pattern, blocks);
  const auto present = [=](std::int64_t head, std::int64_t query, std::int64_t key) {
    const std::int64_t group = (window - 1 - key % window) / pattern.vertsize;
    return key / window == query / window || group == head % pattern.num_verts;
  };
  const std::int64_t layouts = pattern.num_verts == 1 ? 1 : blocks.heads;
  return square_layout(length, blocks, layouts, present, on_or_below_diagonal);
}

StridedOrder::StridedOrder(std::int64_t length, std::int64_t stride)
    : length_(length), stride_(stride) {
  check_at_least("strided order", "length", length, 0);
  check_at_least("strided order", "stride", stride, 1);
  check_multiple("strided order", "length", length, "stride", stride);
}

namespace {

std::int64_t in_range(std::int64_t position, std::int64_t length) {
  if (position < 0 || position >= length) {
    fail("strided order: the position is {}; the length is {}", position, length);
  }
  return position;
}

template <class F>
std::vector<std::int64_t> for_all(std::int64_t length, F f) {
  std::vector<std::int64_t> result;
  for (std::int64_t position = 0; position < length; ++position) result.push_back(f(position));
  return result;
}

}  // namespace

std::int64_t StridedOrder::to_new(std::int64_t old_position) const {
  const std::int64_t p = in_range(old_position, length_);
  return p % stride_ * (length_ / stride_) + p / stride_;
}

std::int64_t StridedOrder::to_old(std::int64_t new_position) const {
  const std::int64_t p = in_range(new_position, length_);
  const std::int64_t run = length_ / stride_;
  return p % run * stride_ + p / run;
}

Index StridedOrder::to_new(const Index& old_position) const {
  return old_position % stride_ * (length_ / stride_) + floor_div(old_position, stride_);
}

Index StridedOrder::to_old(const Index& new_position) const {
  const std::int64_t run = length_ / stride_;
  if (run == 0) return new_position;  // no positions
  return new_position % run * stride_ + floor_div(new_position, run);
}

std::vector<std::int64_t> StridedOrder::all_to_new() const {
  return for_all(length_, [this](std::int64_t p) { return to_new(p); });
}

std::vector<std::int64_t> StridedOrder::all_to_old() const {
  return for_all(length_, [this](std::int64_t p) { return to_old(p); });
}

}  // namespace treadle::patterns
