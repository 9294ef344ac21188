// What forward and backward calls have in common.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "api/check.h"
#include "api/compiled.h"
#include "reference/attention.h"

namespace treadle::api {

// The views of the captures that the slots name.
std::vector<ConstView> memory_of(std::span<const ir::Slot> slots,
                                 const std::vector<Capture>& bound);
Bindings bindings_of(const Attention::Compiled& compiled, const std::vector<Capture>& bound);
reference::Problem problem_of(const Attention::Compiled& compiled, const Inputs& inputs,
                              const std::vector<Capture>& bound);

double scale_of(const Attention::Compiled& compiled, std::int64_t dim);
std::shared_ptr<Executor> executor_of(const Call& call);

// Throws if the layout is not one for such inputs and this mask.
void check_layout(std::string_view call, const Attention::Compiled& compiled, const Extents& e,
                  const Layout& layout);

Shapes shapes_of(const Attention::Compiled& compiled, std::string_view call, const TensorSpec& q,
                 const TensorSpec& k, const TensorSpec& v);
Shapes shapes_of(const Attention::Compiled& compiled, std::string_view call, const Inputs& inputs);

// Results have been checked; those that are there are written.
void run_forward(const Attention::Compiled& compiled, std::string_view name,
                 const ForwardViews& results, const Inputs& inputs, const Call& call);

}  // namespace treadle::api
