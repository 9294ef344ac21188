// What a call may be given. Every function throws treadle::Error: the call, the numbers, the rule.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/hash.h"
#include "treadle/attention.h"

namespace treadle::api {

// Type and shape of a tensor that somebody else holds.
struct TensorShape {
  DType dtype = DType::f32;
  std::span<const std::int64_t> shape;

  TensorShape(DType type, std::span<const std::int64_t> dims) : dtype(type), shape(dims) {}
  TensorShape(const TensorSpec& spec) : dtype(spec.dtype), shape(spec.shape) {}  // NOLINT
  template <class Void>
  TensorShape(const BasicView<Void>& view) : dtype(view.dtype()), shape(view.shape()) {}  // NOLINT
};

// Shapes, types and head counts of q, k and v.
backend::Sizes check_inputs(std::string_view call, const TensorShape& q, const TensorShape& k,
                            const TensorShape& v);

// Whether their gradients can be of the types of k and v, which check_inputs took.
void check_differentiable(std::string_view call, DType k, DType v);

// Tensors that are read: of exactly this type and shape.
void check_tensor(std::string_view call, std::string_view name, const TensorShape& given,
                  const TensorShape& wanted);

// The same for one that will be written: no two elements may share memory.
void check_result(std::string_view call, std::string_view name, const View& view,
                  const TensorShape& wanted);

// Throws if the layout is not one for such inputs and this mask.
void check_layout(std::string_view call, const base::Hash& mask, const backend::Sizes& sizes,
                  const Layout& layout);

// The captures of a call, in the order of `compiled`: those given when compiled, replaced by name
// by those of the call.
std::vector<const Capture*> bind(std::string_view call, const std::vector<Capture>& compiled,
                                 const std::vector<Capture>& given);
// The same into `bound`, whose memory is used again.
void bind(std::string_view call, const std::vector<Capture>& compiled,
          const std::vector<Capture>& given, std::vector<const Capture*>& bound);

// Views for exactly the gradients that were asked for when compiled; `bound` are the call's captures.
void check_captures(const Attention::Compiled& compiled, const std::vector<CaptureView>& views,
                    const std::vector<const Capture*>& bound);

}  // namespace treadle::api
