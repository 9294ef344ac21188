// Runs calls whose inputs and results are checked: binds captures, takes a call apart where batch
// entries stand at different positions, and hands requests to the backend.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "api/compiled.h"
#include "backend/backend.h"
#include "treadle/attention.h"

namespace treadle::api {

using Shape3 = std::array<std::int64_t, 3>;
using Shape4 = std::array<std::int64_t, 4>;

// Of out, and of lse and max.
inline Shape4 out_shape(const backend::Sizes& s) {
  return {s.batch, s.heads, s.queries.count(), s.value_dim};
}
inline Shape3 row_shape(const backend::Sizes& s) { return {s.batch, s.heads, s.queries.count()}; }

void run_forward(std::string_view name, const Attention::Compiled& compiled,
                 const backend::Sizes& sizes, const ForwardViews& results, const Inputs& inputs,
                 const Call& call);

// What a backward call is given but for its results.
struct BackwardGiven {
  const Inputs& inputs;
  const Saved& saved;
  const ConstView& dout;
  const std::optional<ConstView>& dlse;
  const Call& call;
};

// `bound`: its captures, in the order of `compiled`.
void run_backward(const Attention::Compiled& compiled, const backend::Sizes& sizes,
                  const BackwardViews& results, const BackwardGiven& given,
                  const std::vector<const Capture*>& bound);

}  // namespace treadle::api
