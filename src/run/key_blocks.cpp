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
void KeyBlocks<F>::start() {
  run_ = 0;
  piece_ = 0;
  if (!wanted().empty()) at_ = wanted().front().begin();
}

template <class F>
const KeyRows& KeyBlocks<F>::rows_at(std::int64_t position) {
  if (position < rows_.begin || position >= rows_.end)
    rows_ = source_.rows(batch_, head_, position);
  return rows_;
}

// So many keys join the block, which come next in the current run and in the current piece of
// rows.
template <class F>
void KeyBlocks<F>::take(const layout::Run& run) {
  std::vector<Segment>& block = lists_.block;
  const bool goes_on = !block.empty() && block.back().keys.count() == 1 && run.count() == 1 &&
                       block.back().keys.end() == run.begin();
  if (goes_on) {  // in another piece of rows
    block.back().keys = layout::Run(block.back().keys.begin(), run.end(), false);
  } else {
    block.push_back({run, now_.count});
  }
  std::int32_t* position = room_.positions + now_.count;
  if (run.width() == 1) {  // a residue class
    const auto first = static_cast<std::int32_t>(run.begin());
    const auto step = static_cast<std::int32_t>(run.step());
    const auto count = static_cast<std::int32_t>(run.count());
    for (std::int32_t i = 0; i < count; ++i) position[i] = first + i * step;
  } else {
    layout::for_each_piece({&run, 1}, [&](layout::Range keys, bool) {
      for (std::int64_t key = keys.begin; key < keys.end; ++key)
        *position++ = static_cast<std::int32_t>(key);
    });
  }
  now_.count += run.length();

  const layout::Run& now = wanted()[run_];
  at_ = run.end();
  piece_ += run.count() - 1;
  if (at_ < now.piece(piece_).end) return;
  if (++piece_ == now.count()) {
    ++run_;
    piece_ = 0;
  }
  if (run_ < wanted().size()) at_ = wanted()[run_].piece(piece_).begin;
}

// At most so many keys: as many whole pieces as there is room for, or a part of one.
template <class F>
void KeyBlocks<F>::take(std::int64_t most) {
  const layout::Run& now = wanted()[run_];
  const std::int64_t rows_end = rows_at(at_).end;
  if (at_ == now.piece(piece_).begin) {
    const std::int64_t pieces = std::min(most / now.width(), now.pieces_before(rows_end) - piece_);
    if (pieces > 0) return take(now.pieces(piece_, pieces));
  }
  take(layout::Run(at_, std::min({piece_end(), at_ + most, rows_end, chunk().end}), false));
}

// Keys at places place .. place + count of the block, all of the current piece of rows.
template <class F>
void KeyBlocks<F>::copy(std::int64_t place, std::int64_t count) {
  if (count == 0) return;
  const auto load = [&](const CopyKernel& kernel, const std::byte* first, std::int64_t stride,
                        const float* scales, std::int64_t scale_stride, F* to,
                        std::int64_t length) {
    // By position: where position 0 would be, though no row need be there. A number, because a
    // pointer may not leave what it points into.
    const auto zero_of = [&](const auto* address, std::int64_t bytes) {
      const auto zero = reinterpret_cast<std::uintptr_t>(address) -
                        static_cast<std::uintptr_t>(rows_.begin * bytes);
      return reinterpret_cast<decltype(address)>(zero);  // NOLINT(performance-no-int-to-ptr)
    };
    constexpr auto scale_bytes = static_cast<std::int64_t>(sizeof(float));
    kernel({.source = zero_of(first, stride),
            .source_stride = stride,
            .source_index = room_.positions + place,
            .target = to + place * length,
            .target_stride = length * static_cast<std::int64_t>(sizeof(F)),
            .target_index = nullptr,
            .count = count,
            .scales = zero_of(scales, scale_stride * scale_bytes),
            .scale_stride = scale_stride});
  };
  load(load_k_, rows_.keys, rows_.key_stride, rows_.key_scales, rows_.key_scale_stride, room_.keys,
       plan_.dim);
  load(load_v_, rows_.values, rows_.value_stride, rows_.value_scales, rows_.value_scale_stride,
       room_.values, plan_.value_dim);
}

template <class F>
bool KeyBlocks<F>::next() {
  if (run_ >= wanted().size()) return false;
  lists_.block.clear();
  now_ = {.positions = room_.positions};
  const std::int64_t ahead = piece_end() - at_;
  const bool is_last = run_ + 1 == wanted().size() && piece_ + 1 == wanted()[run_].count();
  if (!copies_ && (ahead >= plan::shortest_in_place || is_last)) {
    const KeyRows& rows = rows_at(at_);
    now_.keys = reinterpret_cast<const F*>(rows.key(at_));
    now_.values = reinterpret_cast<const F*>(rows.value(at_));
    take(layout::Run(at_, std::min({at_ + ahead, at_ + plan_.key_block, rows.end, chunk().end}),
                     false));
    now_.segments = lists_.block;
    return true;
  }
  std::int64_t copied = 0;  // places whose rows are
  while (run_ < wanted().size() && now_.count < plan_.key_block) {
    const std::int64_t length = piece_end() - at_;
    if (!copies_ && now_.count > 0 && length >= plan_.key_block) break;  // better read in place
    // So that no tile needs a call for the rest of a chunk and one for the beginning of the next.
    if (now_.count * 2 >= plan_.key_block && at_ == chunk().begin) break;
    if (at_ < rows_.begin || at_ >= rows_.end) {
      copy(copied, now_.count - copied);
      copied = now_.count;
    }
    take(plan_.key_block - now_.count);
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
