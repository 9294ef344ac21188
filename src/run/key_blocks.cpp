// Blocks of keys from runs and a source. Read KeyBlocks::next() first.
#include "run/key_blocks.h"

#include <algorithm>

namespace treadle::run {

template <class F>
typename KeyBlocks<F>::Room KeyBlocks<F>::Room::carve(Carver& carver, const plan::TilePlan& plan) {
  return {carver.take<F>(plan.key_block * plan.dim),
          carver.take<F>(plan.key_block * plan.value_dim),
          carver.take<std::int32_t>(plan.key_block)};
}

template <class F>
KeyBlocks<F>::KeyBlocks(const KeySource& source, const plan::TilePlan& plan,
                        const CopyKernel& load_k, const CopyKernel& load_v, std::int64_t b,
                        std::int64_t key_head, BlockLists& lists)
    : source_(source),
      plan_(plan),
      load_k_(load_k),
      load_v_(load_v),
      batch_(b),
      head_(key_head),
      copies_(source.needs_copy(plan.keys.element)),
      lists_(lists) {}

template <class F>
typename KeyBlocks<F>::Wanted KeyBlocks<F>::start() {
  Wanted wanted;
  for (const Segment& segment : lists_.wanted) wanted.sum += segment.end - segment.begin;
  wanted.keys = join(lists_.wanted);
  segment_ = 0;
  if (!lists_.wanted.empty()) at_ = lists_.wanted.front().begin;
  return wanted;
}

template <class F>
const KeyRows& KeyBlocks<F>::rows_at(std::int64_t position) {
  if (position < rows_.begin || position >= rows_.end)
    rows_ = source_.rows(batch_, head_, position);
  return rows_;
}

// The next so many keys of the current segment join the block.
template <class F>
void KeyBlocks<F>::take(std::int64_t keys) {
  if (!lists_.block.empty() && lists_.block.back().end == at_) {  // of another piece of rows
    lists_.block.back().end += keys;
  } else {
    lists_.block.push_back({at_, at_ + keys, now_.count});
  }
  for (std::int64_t i = 0; i < keys; ++i)
    room_.positions[now_.count + i] = static_cast<std::int32_t>(at_ + i);
  now_.count += keys;
  at_ += keys;
  if (at_ < lists_.wanted[segment_].end) return;
  ++segment_;
  if (segment_ < lists_.wanted.size()) at_ = lists_.wanted[segment_].begin;
}

// Keys at places place .. place + count of the block, all of the current piece of rows.
template <class F>
void KeyBlocks<F>::copy(std::int64_t place, std::int64_t count) {
  if (count == 0) return;
  const auto load = [&](const CopyKernel& kernel, const std::byte* first, std::int64_t stride,
                        F* to, std::int64_t length) {
    // By position: where position 0 would be, though no row need be there. A number, because a
    // pointer may not leave what it points into.
    const auto zero =
        reinterpret_cast<std::uintptr_t>(first) - static_cast<std::uintptr_t>(rows_.begin * stride);
    kernel({.source = reinterpret_cast<const void*>(zero),  // NOLINT(performance-no-int-to-ptr)
            .source_stride = stride,
            .source_index = room_.positions + place,
            .target = to + place * length,
            .target_stride = length * static_cast<std::int64_t>(sizeof(F)),
            .target_index = nullptr,
            .count = count});
  };
  load(load_k_, rows_.keys, rows_.key_stride, room_.keys, plan_.dim);
  load(load_v_, rows_.values, rows_.value_stride, room_.values, plan_.value_dim);
}

template <class F>
bool KeyBlocks<F>::next() {
  const std::vector<Segment>& wanted = lists_.wanted;
  if (segment_ >= wanted.size()) return false;
  lists_.block.clear();
  now_ = {.positions = room_.positions};
  const std::int64_t ahead = wanted[segment_].end - at_;
  if (!copies_ && (ahead >= plan::shortest_in_place || segment_ + 1 == wanted.size())) {
    const KeyRows& rows = rows_at(at_);
    now_.keys = reinterpret_cast<const F*>(rows.key(at_));
    now_.values = reinterpret_cast<const F*>(rows.value(at_));
    take(std::min({ahead, plan_.key_block, rows.end - at_}));
    now_.segments = lists_.block;
    return true;
  }
  std::int64_t copied = 0;  // places whose rows are
  while (segment_ < wanted.size() && now_.count < plan_.key_block) {
    const std::int64_t length = wanted[segment_].end - at_;
    if (!copies_ && now_.count > 0 && length >= plan_.key_block) break;  // better read in place
    if (at_ < rows_.begin || at_ >= rows_.end) {
      copy(copied, now_.count - copied);
      copied = now_.count;
    }
    take(std::min({length, plan_.key_block - now_.count, rows_at(at_).end - at_}));
  }
  copy(copied, now_.count - copied);
  now_.keys = room_.keys;
  now_.values = room_.values;
  now_.segments = lists_.block;
  return true;
}

template class KeyBlocks<float>;
template class KeyBlocks<double>;

}  // namespace treadle::run
