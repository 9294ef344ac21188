// Contributions of pairs to the gradient of a capture, added where they belong.
#pragma once

#include <cstdint>

namespace treadle::run {

// Those of some keys and a tile of queries, with their offsets in the gradient, in elements. A
// value of zero may have an offset outside.
template <class F>
struct Contributions {
  const F* values = nullptr;              // [keys][width]
  const std::int64_t* offsets = nullptr;  // see plan::BackwardKernelArgs
  std::int64_t keys = 0, queries = 0;     // lanes from `queries` on contribute nothing
  std::int64_t width = 0;
  bool separable = false;
};

// Always in the same order, which depends on the contributions alone. False if one is NaN.
template <class F>
bool add_contributions(const Contributions<F>& given, F* sum, std::int64_t count);

}  // namespace treadle::run
