// What a call may be given. Every function throws treadle::Error: the call, the numbers, the rule.
#pragma once

#include <string_view>
#include <vector>

#include "treadle/attention.h"

namespace treadle::api {

struct Extents {
  std::int64_t batch = 0, heads = 0, key_batch = 0, key_heads = 0, queries = 0, keys = 0, dim = 0,
               value_dim = 0;
};

// Shapes, types and head counts of q, k and v.
Extents check_inputs(std::string_view call, const TensorSpec& q, const TensorSpec& k,
                     const TensorSpec& v);

// A tensor of exactly this type and shape.
void check_tensor(std::string_view call, std::string_view name, const ConstView& view,
                  const TensorSpec& wanted);

// The same for one that will be written: no two elements may share memory.
void check_result(std::string_view call, std::string_view name, const View& view,
                  const TensorSpec& wanted);

// The captures of a call: those given when compiled, replaced by name by those of the call.
std::vector<Capture> bind(std::string_view call, const std::vector<Capture>& compiled,
                          const std::vector<Capture>& given);

TensorSpec spec_of(const ConstView& view);

}  // namespace treadle::api
