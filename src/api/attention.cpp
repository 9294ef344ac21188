// Calls: check what was given and make room for results. api/run_call.cpp goes on. What has been
// written when a call throws: treadle/error.h.
#include "treadle/attention.h"

#include <algorithm>
#include <array>

#include "api/check.h"
#include "api/compiled.h"
#include "api/run_call.h"
#include "base/error.h"

namespace treadle {
namespace {

using api::out_shape;
using api::row_shape;
using api::Shape3;
using api::Shape4;
using backend::Sizes;

Sizes check_backward(const Attention::Compiled& compiled, const api::BackwardGiven& given) {
  const Sizes sizes = api::check_inputs("backward", given.inputs.q, given.inputs.k, given.inputs.v);
  api::check_differentiable("backward", given.inputs.k.dtype(), given.inputs.v.dtype());
  const Shape4 out = out_shape(sizes);
  const Shape3 rows = row_shape(sizes);
  const DType type = given.inputs.q.dtype();
  if (compiled.save == Save::lse) {
    api::check_tensor("backward", "out", given.saved.out, {type, out});
    if (given.saved.lse.shape() == Dims{0})
      base::fail("backward: saved.lse is empty; forward returns it when Call::lse is set");
    api::check_tensor("backward", "lse", given.saved.lse, {sizes.compute, rows});
  }
  api::check_tensor("backward", "dout", given.dout, {type, out});
  if (given.dlse) api::check_tensor("backward", "dlse", *given.dlse, {sizes.compute, rows});
  return sizes;
}

}  // namespace

Forward Attention::forward(const Inputs& inputs, const Call& call) const {
  const Sizes sizes = api::check_inputs("forward", inputs.q, inputs.k, inputs.v);
  const Shape4 shape = out_shape(sizes);
  const Shape3 rows = row_shape(sizes);
  Forward result{Tensor(inputs.q.dtype(), {shape.begin(), shape.end()}), Tensor(), Tensor()};
  ForwardViews views{result.out.view(), std::nullopt, std::nullopt};
  if (call.lse) {
    result.lse = Tensor(sizes.compute, {rows.begin(), rows.end()});
    views.lse = result.lse;
  }
  if (call.max) {
    result.max = Tensor(sizes.compute, {rows.begin(), rows.end()});
    views.max = result.max;
  }
  api::run_forward("forward", *compiled_, sizes, views, inputs, call);
  return result;
}

void Attention::forward_into(const ForwardViews& results, const Inputs& inputs,
                             const Call& call) const {
  const Sizes sizes = api::check_inputs("forward", inputs.q, inputs.k, inputs.v);
  const Shape4 shape = out_shape(sizes);
  const Shape3 rows = row_shape(sizes);
  api::check_result("forward", "out", results.out, {inputs.q.dtype(), shape});
  if (results.lse) api::check_result("forward", "lse", *results.lse, {sizes.compute, rows});
  if (results.max) api::check_result("forward", "max", *results.max, {sizes.compute, rows});
  api::run_forward("forward", *compiled_, sizes, results, inputs, call);
}

Backward Attention::backward(const Inputs& inputs, const Saved& saved, const ConstView& dout,
                             const std::optional<ConstView>& dlse, const Call& call) const {
  const api::BackwardGiven given{inputs, saved, dout, dlse, call};
  const Sizes sizes = check_backward(*compiled_, given);
  const std::vector<const Capture*> bound =
      api::bind("backward", compiled_->captures, call.captures);
  const auto like = [](const ConstView& view) { return Tensor(view.dtype(), view.shape()); };
  Backward result{like(inputs.q), like(inputs.k), like(inputs.v), {}, Tensor()};
  BackwardViews views{result.dq, result.dk, result.dv, {}, std::nullopt};
  if (call.sinks) {
    result.dsinks = like(*call.sinks);
    views.dsinks = result.dsinks;
  }
  for (const std::string& name : compiled_->gradients) {
    const Capture& capture = **std::ranges::find(bound, name, &Capture::name);
    result.captures.push_back({name, like(capture.view())});
    views.captures.push_back({name, result.captures.back().gradient});
  }
  api::run_backward(*compiled_, sizes, views, given, bound);
  return result;
}

void Attention::backward_into(const BackwardViews& results, const Inputs& inputs,
                              const Saved& saved, const ConstView& dout,
                              const std::optional<ConstView>& dlse, const Call& call) const {
  const api::BackwardGiven given{inputs, saved, dout, dlse, call};
  const Sizes sizes = check_backward(*compiled_, given);
  api::check_result("backward", "dq", results.dq, inputs.q);
  api::check_result("backward", "dk", results.dk, inputs.k);
  api::check_result("backward", "dv", results.dv, inputs.v);
  const std::vector<const Capture*> bound =
      api::bind("backward", compiled_->captures, call.captures);
  api::check_captures(*compiled_, results.captures, bound);
  if (results.dsinks) {
    if (!call.sinks) base::fail("backward: a view for dsinks was passed, but no sinks");
    api::check_result("backward", "dsinks", *results.dsinks, *call.sinks);
  }
  api::run_backward(*compiled_, sizes, results, given, bound);
}

}  // namespace treadle
