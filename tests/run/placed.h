// Tensors in memory of any shape: rows apart, axes in another order, backwards, repeated.
//
//   Placed k = placed(random, DType::bf16, {2, 4, 100, 24}, {.repeats = true});
//   fill_eighths(random, k.view);
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/element.h"
#include "random_graph.h"
#include "treadle/tensor.h"

namespace treadle::test {

struct Placed {
  Tensor memory;
  View view;
};

struct Placement {
  bool repeats = false;     // axes of stride 0, for what is only read
  bool any_inner = true;    // the last axis may have gaps or not be innermost
  double contiguous = 0.3;  // how often nothing is odd about it
};

inline Placed placed(Random& random, DType dtype, const Dims& shape,
                     const Placement& placement = {}) {
  if (chance(random, placement.contiguous)) {
    Tensor memory(dtype, shape);
    const View view = memory;
    return {std::move(memory), view};
  }
  std::array<std::size_t, 4> order{0, 1, 2, 3};  // outermost first
  const bool inner = placement.any_inner && chance(random, 0.15);
  std::shuffle(order.begin(), order.end() - (inner ? 0 : 1), random);
  Dims strides(4);
  std::int64_t reach = 1;
  std::int64_t start = random_int(random, 0, 5);
  for (std::size_t i = 4; i-- > 0;) {
    const std::size_t axis = order[i];
    const std::int64_t length = std::max<std::int64_t>(shape[axis], 1);
    const bool last = axis == 3 && !inner;
    if (!last && placement.repeats && chance(random, 0.1)) continue;
    const std::int64_t gap = !last && chance(random, 0.4) ? random_int(random, 1, 7) : 0;
    strides[axis] = reach + gap;
    reach += strides[axis] * (length - 1) + gap;
    if (!last && chance(random, 0.15)) {
      start += strides[axis] * (length - 1);
      strides[axis] = -strides[axis];
    }
  }
  Tensor memory(dtype, {reach + 12});
  auto* first = static_cast<std::byte*>(memory.view().data()) +
                start * static_cast<std::int64_t>(size_of(dtype));
  return {std::move(memory), View(first, dtype, shape, strides)};
}

// Calls f(offset) for every element.
template <class F>
void for_each_element(const ConstView& view, F&& f) {
  for (std::int64_t a = 0; a < view.size(0); ++a) {
    for (std::int64_t b = 0; b < view.size(1); ++b) {
      for (std::int64_t c = 0; c < view.size(2); ++c) {
        for (std::int64_t d = 0; d < view.size(3); ++d) {
          f(a * view.stride(0) + b * view.stride(1) + c * view.stride(2) + d * view.stride(3));
        }
      }
    }
  }
}

// Multiples of 1/8 up to 2: their products and sums are exact in every type, so a score has the
// same bits wherever it is computed.
inline void fill_eighths(Random& random, const View& view) {
  for_each_element(view, [&](std::int64_t at) {
    const auto eighths = static_cast<double>(static_cast<std::int64_t>(random() % 33) - 16);
    base::store_double(view.data(), view.dtype(), at, eighths / 8);
  });
}

inline void fill_reals(Random& random, const View& view) {
  for_each_element(view, [&](std::int64_t at) {
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    base::store_double(view.data(), view.dtype(), at, 4 * unit - 2);
  });
}

}  // namespace treadle::test
