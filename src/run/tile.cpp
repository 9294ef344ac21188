// States cleared and merged.
#include "run/tile.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace treadle::run {
namespace {

// 2^n for a whole n <= 0, as the kernels compute it: 0 where a float has no normal number for it.
template <class F>
F power(F n) {
  constexpr F lowest = std::numeric_limits<F>::min_exponent - 1;
  return std::isnan(n) ? n : n < lowest ? F{0} : std::ldexp(F{1}, static_cast<int>(n));
}

}  // namespace

template <class F>
TileState<F> TileState<F>::carve(Carver& carver, std::int64_t width, std::int64_t value_dim) {
  return {carver.take<F>(width), carver.take<F>(width), carver.take<F>(width * value_dim)};
}

template <class F>
void TileState<F>::clear(std::int64_t width, std::int64_t value_dim) {
  std::fill_n(maximum, width, -std::numeric_limits<F>::infinity());
  std::fill_n(weight, width, F{0});
  std::fill_n(sums, width * value_dim, F{0});
}

template <class F>
void merge(const TileState<F>& total, const TileState<F>& part, std::int64_t width,
           std::int64_t value_dim) {
  constexpr F nothing = -std::numeric_limits<F>::infinity();
  constexpr std::int64_t most = 64;  // lanes at a time
  for (std::int64_t first = 0; first < width; first += most) {
    F keep[most], add[most];
    const std::int64_t count = std::min(most, width - first);
    for (std::int64_t i = 0; i < count; ++i) {
      F& old = total.maximum[first + i];
      const F other = part.maximum[first + i];
      // A NaN stays; where one side saw nothing the other is taken as it is.
      const F now = std::isnan(old) || std::isnan(other) ? std::numeric_limits<F>::quiet_NaN()
                                                         : std::max(old, other);
      keep[i] = old == nothing ? F{0} : power<F>(std::ceil(old) - std::ceil(now));
      add[i] = other == nothing ? F{0} : power<F>(std::ceil(other) - std::ceil(now));
      old = now;
      F& weight = total.weight[first + i];
      weight = weight * keep[i] + part.weight[first + i] * add[i];
    }
    for (std::int64_t d = 0; d < value_dim; ++d) {
      F* to = total.sums + d * width + first;
      const F* from = part.sums + d * width + first;
      for (std::int64_t i = 0; i < count; ++i) to[i] = to[i] * keep[i] + from[i] * add[i];
    }
  }
}

template struct TileState<float>;
template struct TileState<double>;
template void merge(const TileState<float>&, const TileState<float>&, std::int64_t, std::int64_t);
template void merge(const TileState<double>&, const TileState<double>&, std::int64_t, std::int64_t);

}  // namespace treadle::run
