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

// What two states are multiplied with when they become one, whose maximum is `now`.
template <class F>
struct Joint {
  F now, keep, add;

  Joint(F old, F other) {
    constexpr F nothing = -std::numeric_limits<F>::infinity();
    // A NaN stays; where one side saw nothing the other is taken as it is.
    now = std::isnan(old) || std::isnan(other) ? std::numeric_limits<F>::quiet_NaN()
                                               : std::max(old, other);
    keep = old == nothing ? F{0} : power<F>(std::ceil(old) - std::ceil(now));
    add = other == nothing ? F{0} : power<F>(std::ceil(other) - std::ceil(now));
  }
};

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
  constexpr std::int64_t most = 64;  // lanes at a time
  for (std::int64_t first = 0; first < width; first += most) {
    F keep[most], add[most];
    const std::int64_t count = std::min(most, width - first);
    for (std::int64_t i = 0; i < count; ++i) {
      F& maximum = total.maximum[first + i];
      const Joint<F> joint(maximum, part.maximum[first + i]);
      keep[i] = joint.keep;
      add[i] = joint.add;
      maximum = joint.now;
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

template <class F>
void merge(const RowState<F>& total, const RowState<F>& part, std::int64_t value_dim) {
  const Joint<F> joint(*total.maximum, *part.maximum);
  *total.maximum = joint.now;
  *total.weight = *total.weight * joint.keep + *part.weight * joint.add;
  F* to = total.sums;
  const F* from = part.sums;
  for (std::int64_t d = 0; d < value_dim; ++d) to[d] = to[d] * joint.keep + from[d] * joint.add;
}

template struct TileState<float>;
template struct TileState<double>;
template void merge(const TileState<float>&, const TileState<float>&, std::int64_t, std::int64_t);
template void merge(const TileState<double>&, const TileState<double>&, std::int64_t, std::int64_t);

template void merge(const RowState<float>&, const RowState<float>&, std::int64_t);
template void merge(const RowState<double>&, const RowState<double>&, std::int64_t);

}  // namespace treadle::run
