// Whether an array is free of NaN.
#pragma once

#include <cstdint>

namespace treadle::run {

// Without a way out in the middle, so that several are looked at at once.
template <class F>
bool all_numbers(const F* values, std::int64_t count) {
  int others = 0;
  for (std::int64_t i = 0; i < count; ++i) others |= values[i] != values[i] ? 1 : 0;
  return others == 0;
}

}  // namespace treadle::run
