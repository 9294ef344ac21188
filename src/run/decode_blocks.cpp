// Pieces of runs, cut where rows are, put together to blocks. Read next() and fill() first.
#include "run/decode_blocks.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "run/wanted_keys.h"

namespace treadle::run {

DecodeBlock DecodeBlock::carve(Carver& carver, const DecodeBlockSize& size) {
  DecodeBlock block;
  block.groups = carver.take<plan::KeyGroup>((size.keys + size.lanes - 1) / size.lanes);
  block.keys = carver.take<std::byte>(size.keys * size.key_bytes);
  block.values = carver.take<std::byte>(size.keys * size.value_bytes);
  block.key_scales = carver.take<float>(size.keys);
  block.value_scales = carver.take<float>(size.keys);
  block.positions = carver.take<std::int32_t>(size.keys);
  return block;
}

void DecodeBlocks::find_piece() {
  for (; !runs_.empty(); runs_ = runs_.subspan(1), piece_ = 0) {
    const layout::Run& run = runs_.front();
    piece_ = std::max(piece_, run.pieces_before(inside_.begin));
    if (piece_ == run.count()) continue;
    const layout::Range piece = run.piece(piece_);
    left_ = {std::max(piece.begin, inside_.begin), std::min(piece.end, inside_.end)};
    if (left_.begin >= left_.end) runs_ = {};  // all others come later
    return;
  }
}

void DecodeBlocks::start(std::span<const layout::Run> runs, layout::Range keys) {
  runs_ = runs_near(runs, keys);
  inside_ = keys;
  piece_ = 0;
  find_piece();
  fill(room_.ahead);
}

bool DecodeBlocks::next() {
  if (room_.ahead.count == 0) return false;
  std::swap(room_.now, room_.ahead);
  fill(room_.ahead);
  return true;
}

std::int64_t DecodeBlocks::next_alike(std::int64_t most) {
  if (left_.begin < rows_.begin || left_.begin >= rows_.end)
    rows_ = source_.rows(entry_, key_head_, left_.begin);
  return std::min({left_.end - left_.begin, rows_.end - left_.begin, most});
}

// Positions and scales of keys that join the block.
void DecodeBlocks::take(DecodeBlock& block, std::int64_t count) {
  const auto scales = [&](const float* all, std::int64_t stride, float* to) {
    if (all == nullptr) return;
    const float* first = all + (left_.begin - rows_.begin) * stride;
    for (std::int64_t i = 0; i < count; ++i) to[i] = first[i * stride];
  };
  scales(rows_.key_scales, rows_.key_scale_stride, block.key_scales + block.count);
  scales(rows_.value_scales, rows_.value_scale_stride, block.value_scales + block.count);
  for (std::int64_t i = 0; i < count; ++i)
    block.positions[block.count + i] = static_cast<std::int32_t>(left_.begin + i);
  block.count += count;
  left_.begin += count;
  if (!left_.empty()) return;
  ++piece_;
  find_piece();
}

// The next keys' rows, to where they have room in the block.
void DecodeBlocks::copy_keys(DecodeBlock& block, std::int64_t count) {
  const std::int64_t bytes = room_.size.key_bytes;
  for (std::int64_t i = 0; i < count; ++i)
    std::memcpy(block.keys + (block.count + i) * bytes, rows_.key(left_.begin + i),
                static_cast<std::size_t>(bytes));
}

// A vector's worth of keys, or those that are left. False if the block has to end before it.
bool DecodeBlocks::take_group(DecodeBlock& block) {
  const DecodeBlockSize& size = room_.size;
  plan::KeyGroup& group = block.groups[block.count / size.lanes];
  const std::int64_t alike = next_alike(size.lanes);
  // A block that begins in the middle of a page ends with it, so that others begin where pages do.
  const bool is_rest = block.count == 0 && left_.begin > rows_.begin;
  if (alike == size.lanes || is_rest || left_.begin + alike == inside_.end) {
    group = {rows_.key(left_.begin), rows_.key_stride, rows_.value(left_.begin),
             rows_.value_stride};
    if (alike < size.lanes) {
      group.keys = block.keys + block.count * size.key_bytes;
      group.key_stride = size.key_bytes;
      copy_keys(block, alike);
    }
    take(block, alike);
    return alike == size.lanes;
  }
  group = {block.keys + block.count * size.key_bytes, size.key_bytes,
           block.values + block.count * size.value_bytes, size.value_bytes};
  const std::int64_t end = block.count + size.lanes;
  // Neighbours only: kernels read captures by kv as vectors.
  std::int64_t neighbour = left_.begin;
  while (block.count < end && !runs_.empty() && runs_.front().full() == block.full &&
         left_.begin == neighbour) {
    const std::int64_t count = next_alike(end - block.count);
    copy_keys(block, count);
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(block.values + (block.count + i) * size.value_bytes, rows_.value(left_.begin + i),
                  static_cast<std::size_t>(size.value_bytes));
    }
    neighbour = left_.begin + count;
    take(block, count);
  }
  return block.count == end;
}

void DecodeBlocks::fill(DecodeBlock& block) {
  block.count = 0;
  if (!runs_.empty()) block.full = runs_.front().full();
  while (!runs_.empty() && runs_.front().full() == block.full && block.count < room_.size.keys)
    if (!take_group(block)) break;
  if (block.count == 0) return;
  const std::int64_t lanes = room_.size.lanes, end = (block.count + lanes - 1) / lanes * lanes;
  const auto repeat_last = [&](auto* array) {
    std::fill(array + block.count, array + end, array[block.count - 1]);
  };
  for (std::int64_t i = block.count; i < end; ++i)
    std::memcpy(block.keys + i * room_.size.key_bytes,
                block.keys + (block.count - 1) * room_.size.key_bytes,
                static_cast<std::size_t>(room_.size.key_bytes));
  repeat_last(block.positions);
  if (rows_.key_scales != nullptr) repeat_last(block.key_scales);
  if (rows_.value_scales != nullptr) repeat_last(block.value_scales);
}

}  // namespace treadle::run
