// Row by row, head by head.
#include "distributed/row_delta.h"

#include <cstdint>
#include <vector>

#include "base/element.h"
#include "run/row_terms.h"

namespace treadle::distributed {
namespace {

template <class F>
void find_delta(const Given& given, Tensor& delta, const base::Workers& workers) {
  const std::int64_t heads = delta.size(1), rows = delta.size(2), length = given.dout.size(3);
  const std::span<F> to = delta.data<F>();
  base::parallel_for(workers, delta.size(0) * heads, [&](std::int64_t i) {
    std::vector<F> out(static_cast<std::size_t>(length)), dout(out.size());
    const auto load = [&](const ConstView& view, std::int64_t row, std::vector<F>& numbers) {
      base::visit_dtype(view.dtype(), [&](auto element) {
        using T = typename decltype(element)::type;
        const std::int64_t at =
            i / heads * view.stride(0) + i % heads * view.stride(1) + row * view.stride(2);
        for (std::int64_t d = 0; d < length; ++d)
          numbers[static_cast<std::size_t>(d)] =
              static_cast<F>(base::load_as<T>(view.data(), at + d * view.stride(3)));
      });
    };
    for (std::int64_t row = 0; row < rows; ++row) {
      load(given.saved.out, row, out);
      load(given.dout, row, dout);
      F sum = run::row_product(dout.data(), out.data(), length);
      if (given.dlse) {
        const ConstView& dlse = *given.dlse;
        sum -=
            static_cast<const F*>(dlse.data())[i / heads * dlse.stride(0) +
                                               i % heads * dlse.stride(1) + row * dlse.stride(2)];
      }
      to[static_cast<std::size_t>(i * rows + row)] = sum;
    }
  });
}

}  // namespace

Tensor delta_of(const Given& given, const Plan::Held& held, const base::Workers& workers) {
  const backend::Sizes& s = held.sizes;
  Tensor delta(s.compute, {s.batch, s.heads, held.own_queries().count()});
  if (s.compute == DType::f64) {
    find_delta<double>(given, delta, workers);
  } else {
    find_delta<float>(given, delta, workers);
  }
  return delta;
}

}  // namespace treadle::distributed
