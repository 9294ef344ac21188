// Whether an array holds a NaN, or a NaN or infinity.
#pragma once

#include <cstdint>

namespace treadle::run {

// Without a way out in the middle, so that several elements are looked at at once.
template <class F>
bool has_nan(const F* values, std::int64_t count) {
  int found = 0;
  for (std::int64_t i = 0; i < count; ++i) found |= values[i] != values[i] ? 1 : 0;
  return found != 0;
}

template <class F>
bool has_nonfinite(const F* values, std::int64_t count) {
  int found = 0;
  // Also false of a NaN.
  for (std::int64_t i = 0; i < count; ++i) found |= values[i] - values[i] == F{0} ? 0 : 1;
  return found != 0;
}

}  // namespace treadle::run
