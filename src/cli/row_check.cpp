// Single rows, asked of the reference: each is a call with one query at its position, whose mods see its head.
#include "cli/row_check.h"

#include <algorithm>
#include <cmath>

#include "base/copy.h"
#include "base/element.h"

namespace treadle::cli {
namespace {

// One head and `count` rows from row i on.
ConstView part_of(const ConstView& view, std::int64_t h, std::int64_t i, std::int64_t count) {
  const auto size = static_cast<std::int64_t>(size_of(view.dtype()));
  const auto* data = static_cast<const std::byte*>(view.data());
  return {data + (h * view.stride(1) + i * view.stride(2)) * size,
          view.dtype(),
          {1, 1, count, view.size(3)},
          view.strides()};
}

// The mods at head h, for calls whose only head is 0.
Options at(const Options& options, std::int64_t h) {
  Options shifted = options;
  shifted.backend = Backend::reference;
  shifted.gradients.clear();
  shifted.score_mod = [&options, h](Score s, Index b, Index zero, Index q, Index kv) {
    return options.score_mod(s, b, zero + h, q, kv);
  };
  shifted.mask = [&options, h](Index b, Index zero, Index q, Index kv) {
    return options.mask(b, zero + h, q, kv);
  };
  return shifted;
}

}  // namespace

double row_error(const Options& options, const Inputs& inputs, const ConstView& out,
                 const Dropout& dropout) {
  const std::int64_t heads = inputs.q.size(1), queries = inputs.q.size(2);
  const std::int64_t keys = inputs.k.size(2);
  double worst = 0;
  for (int i = 0; i < 6; ++i) {
    const std::int64_t h = dropout.probability > 0 ? 0 : i % heads;
    const std::int64_t q = i == 0 ? 0 : (queries - 1) * i / 5;
    const std::int64_t key_head = h / (heads / inputs.k.size(1));
    Options shifted = at(options, h);
    shifted.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(inputs.q.size(3))));
    const Tensor row = base::convert(part_of(inputs.q, h, q, 1), DType::f64);
    const Tensor k = base::convert(part_of(inputs.k, key_head, 0, keys), DType::f64);
    const Tensor v = base::convert(part_of(inputs.v, key_head, 0, keys), DType::f64);
    const Tensor expected =
        attention({row, k, v}, shifted, {.q_offsets = {q}, .dropout = dropout}).out;
    const ConstView seen = part_of(out, h, q, 1);
    for (std::int64_t d = 0; d < seen.size(3); ++d) {
      const double value = base::load_double(seen.data(), seen.dtype(), d * seen.stride(3));
      worst = std::max(worst, std::abs(value - expected.at<double>({0, 0, 0, d})));
    }
  }
  return worst;
}

}  // namespace treadle::cli
