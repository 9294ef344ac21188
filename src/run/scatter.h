// What pairs give to the gradient of a capture, added where it belongs.
#pragma once

#include <cstdint>

namespace treadle::run {

// The amounts of a stretch of keys and a tile of queries, and their places in the gradient, counted
// in elements. An amount of zero may have a place outside.
template <class F>
struct Gifts {
  const F* amounts = nullptr;            // [keys][width]
  const std::int64_t* places = nullptr;  // see plan::BackwardKernelArgs
  std::int64_t keys = 0, queries = 0;    // lanes from `queries` on give nothing
  std::int64_t width = 0;
  bool separable = false;
};

// Always in the same order, which depends on the gifts alone. False if one is not a number.
template <class F>
bool scatter(const Gifts<F>& gifts, F* sum, std::int64_t count);

}  // namespace treadle::run
