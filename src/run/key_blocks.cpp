#include "run/key_blocks.h"

#include <algorithm>

namespace treadle::run {
namespace {

// Keys that are read where they are come in stretches at least this long; shorter ones are copied
// side by side.
constexpr std::int64_t shortest_in_place = 16;

}  // namespace

bool needs_copy(const ConstView& view, DType compute) {
  return view.dtype() != compute || (view.stride(2) != view.size(3) && view.size(2) > 1);
}

const std::byte* rows_of(const ConstView& view, std::int64_t b, std::int64_t h) {
  const std::int64_t offset = b * view.stride(0) + h * view.stride(1);
  return static_cast<const std::byte*>(view.data()) +
         offset * static_cast<std::int64_t>(size_of(view.dtype()));
}

std::int64_t row_bytes(const ConstView& view) {
  return view.stride(2) * static_cast<std::int64_t>(size_of(view.dtype()));
}

template <class F>
typename KeyBlocks<F>::Room KeyBlocks<F>::Room::carve(Carver& carver, std::int64_t key_block,
                                                      std::int64_t dim, std::int64_t value_dim) {
  return {carver.take<F>(key_block * dim), carver.take<F>(key_block * value_dim),
          carver.take<std::int32_t>(key_block)};
}

template <class F>
KeyBlocks<F>::KeyBlocks(ForwardKernels& kernels, const ConstView& k, const ConstView& v,
                        std::int64_t b, std::int64_t key_head, Workspace& work)
    : kernels_(kernels),
      k_(k),
      v_(v),
      batch_(k.size(0) == 1 ? 0 : b),
      head_(key_head),
      key_block_(kernels.plan(1).key_block),
      copies_(needs_copy(k, kernels.spec().compute) || needs_copy(v, kernels.spec().compute)),
      work_(work) {}

template <class F>
void KeyBlocks<F>::start() {
  segment_ = 0;
  if (!work_.wanted.empty()) at_ = work_.wanted.front().begin;
}

// The next so many keys of the current segment join the block.
template <class F>
void KeyBlocks<F>::take(std::int64_t keys) {
  work_.block.push_back({at_, at_ + keys, count_});
  for (std::int64_t i = 0; i < keys; ++i)
    room_.indices[count_ + i] = static_cast<std::int32_t>(at_ + i);
  count_ += keys;
  at_ += keys;
  if (at_ < work_.wanted[segment_].end) return;
  ++segment_;
  if (segment_ < work_.wanted.size()) at_ = work_.wanted[segment_].begin;
}

template <class F>
void KeyBlocks<F>::copy(CopyKernel* kernel, const ConstView& view, F* to, std::int64_t length) {
  const plan::CopyArgs args{.source = rows_of(view, batch_, head_),
                            .source_stride = row_bytes(view),
                            .source_index = room_.indices,
                            .target = to,
                            .target_stride = length * static_cast<std::int64_t>(sizeof(F)),
                            .target_index = nullptr,
                            .count = count_};
  kernel(&args);
}

template <class F>
bool KeyBlocks<F>::next() {
  const std::vector<Segment>& wanted = work_.wanted;
  if (segment_ >= wanted.size()) return false;
  work_.block.clear();
  count_ = 0;
  const std::int64_t dim = kernels_.spec().dim;
  const std::int64_t value_dim = kernels_.spec().value_dim;
  const std::int64_t ahead = wanted[segment_].end - at_;
  if (!copies_ && (ahead >= shortest_in_place || segment_ + 1 == wanted.size())) {
    const std::int64_t first = at_;
    take(std::min(ahead, key_block_));
    keys_ = reinterpret_cast<const F*>(rows_of(k_, batch_, head_)) + first * dim;
    values_ = reinterpret_cast<const F*>(rows_of(v_, batch_, head_)) + first * value_dim;
    return true;
  }
  while (segment_ < wanted.size() && count_ < key_block_) {
    const std::int64_t length = wanted[segment_].end - at_;
    if (!copies_ && count_ > 0 && length >= key_block_) break;  // better read where it is
    take(std::min(length, key_block_ - count_));
  }
  copy(kernels_.load_k(), k_, room_.keys, dim);
  copy(kernels_.load_v(), v_, room_.values, value_dim);
  keys_ = room_.keys;
  values_ = room_.values;
  return true;
}

template class KeyBlocks<float>;
template class KeyBlocks<double>;

}  // namespace treadle::run
