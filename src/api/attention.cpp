// Calls: check what was given, bind captures, and hand the request to the backend. The stages after
// that are in backend/cpu/call.cpp. What has been written when a call throws: treadle/error.h.
#include "treadle/attention.h"

#include <algorithm>
#include <array>

#include "api/call.h"
#include "api/check.h"
#include "api/compiled.h"
#include "api/sinks.h"
#include "base/element.h"
#include "base/error.h"

namespace treadle {
namespace {

using api::TensorShape;
using backend::Sizes;
using Shape3 = std::array<std::int64_t, 3>;
using Shape4 = std::array<std::int64_t, 4>;

Shape4 out_shape(const Sizes& s) { return {s.batch, s.heads, s.queries.count(), s.value_dim}; }
Shape3 row_shape(const Sizes& s) { return {s.batch, s.heads, s.queries.count()}; }

Sizes check_common(std::string_view name, const Attention::Compiled& compiled, const Inputs& inputs,
                   const Call& call) {
  const Sizes sizes = api::check_inputs(name, inputs.q, inputs.k, inputs.v);
  api::check_layout(name, compiled.mask, sizes, call.layout);
  return sizes;
}

// All has been checked but the captures.
void run_forward(std::string_view name, const Attention::Compiled& compiled, const Sizes& sizes,
                 const ForwardViews& results, const Inputs& inputs, const Call& call) {
  const std::vector<double> sinks = api::sinks_of(name, call.sinks, sizes);
  const std::vector<const Capture*> bound = api::bind(name, compiled.captures, call.captures);
  const backend::Bindings bindings = api::bindings_of(compiled.program, bound);
  const backend::Request request{name,
                                 sizes,
                                 inputs,
                                 api::scale_of(compiled, sizes.dim),
                                 bindings,
                                 call.layout,
                                 api::workers_of(name, call),
                                 sinks};
  compiled.backend->forward({request, results});
}

// What a backward call is given but for its results.
struct BackwardGiven {
  const Inputs& inputs;
  const Saved& saved;
  const ConstView& dout;
  const std::optional<ConstView>& dlse;
  const Call& call;
};

Sizes check_backward(const Attention::Compiled& compiled, const BackwardGiven& given) {
  const Sizes sizes = check_common("backward", compiled, given.inputs, given.call);
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

// Views for exactly the gradients that were asked for when compiled.
void check_captures(const Attention::Compiled& compiled, const std::vector<CaptureView>& views,
                    const std::vector<const Capture*>& bound) {
  for (const CaptureView& given : views) {
    if (std::ranges::find(compiled.gradients, given.name) == compiled.gradients.end()) {
      base::fail("backward: a view for the gradient of \"{}\" is given, which was not asked for",
                 given.name);
    }
    if (std::ranges::count(views, given.name, &CaptureView::name) > 1)
      base::fail("backward: two views for the gradient of \"{}\" are given", given.name);
  }
  for (const std::string& name : compiled.gradients) {
    const auto found = std::ranges::find(views, name, &CaptureView::name);
    if (found == views.end())
      base::fail("backward: no view for the gradient of \"{}\" is given", name);
    const auto capture = std::ranges::find(bound, name, &Capture::name);
    api::check_result("backward", "the gradient of \"" + name + "\"", found->gradient,
                      (*capture)->view());
  }
}

void run_backward(const Attention::Compiled& compiled, const Sizes& sizes,
                  const BackwardViews& results, const BackwardGiven& given,
                  const std::vector<const Capture*>& bound) {
  Tensor out, lse;
  Saved recomputed;
  const bool recompute = compiled.save == Save::nothing;
  if (recompute) {
    const Shape4 shape = out_shape(sizes);
    const Shape3 rows = row_shape(sizes);
    out = Tensor(given.inputs.q.dtype(), {shape.begin(), shape.end()});
    lse = Tensor(sizes.compute, {rows.begin(), rows.end()});
    run_forward("backward", compiled, sizes, {out.view(), lse.view(), std::nullopt}, given.inputs,
                given.call);
    recomputed = {out, lse};
  }
  const std::vector<double> sinks = api::sinks_of("backward", given.call.sinks, sizes);
  const backend::Bindings bindings = api::bindings_of(compiled.program, bound);
  const backend::Request request{"backward",
                                 sizes,
                                 given.inputs,
                                 api::scale_of(compiled, sizes.dim),
                                 bindings,
                                 given.call.layout,
                                 api::workers_of("backward", given.call),
                                 sinks};
  const Saved& saved = recompute ? recomputed : given.saved;
  // Before anything is written: results may lie where it is read.
  std::vector<double> dsinks;
  if (results.dsinks)
    dsinks = api::sink_gradients(sinks, sizes, {saved, given.dout, given.dlse}, request.workers);
  compiled.backend->backward({request, saved, given.dout, given.dlse, results});
  if (results.dsinks) {
    base::visit_dtype(results.dsinks->dtype(), [&](auto element) {
      using T = typename decltype(element)::type;
      for (std::size_t h = 0; h < dsinks.size(); ++h)
        base::store_as<T>(results.dsinks->data(),
                          static_cast<std::int64_t>(h) * results.dsinks->stride(0), dsinks[h]);
    });
  }
}

}  // namespace

Forward Attention::forward(const Inputs& inputs, const Call& call) const {
  const Sizes sizes = check_common("forward", *compiled_, inputs, call);
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
  run_forward("forward", *compiled_, sizes, views, inputs, call);
  return result;
}

void Attention::forward_into(const ForwardViews& results, const Inputs& inputs,
                             const Call& call) const {
  const Sizes sizes = check_common("forward", *compiled_, inputs, call);
  const Shape4 shape = out_shape(sizes);
  const Shape3 rows = row_shape(sizes);
  api::check_result("forward", "out", results.out, {inputs.q.dtype(), shape});
  if (results.lse) api::check_result("forward", "lse", *results.lse, {sizes.compute, rows});
  if (results.max) api::check_result("forward", "max", *results.max, {sizes.compute, rows});
  run_forward("forward", *compiled_, sizes, results, inputs, call);
}

Backward Attention::backward(const Inputs& inputs, const Saved& saved, const ConstView& dout,
                             const std::optional<ConstView>& dlse, const Call& call) const {
  const BackwardGiven given{inputs, saved, dout, dlse, call};
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
  run_backward(*compiled_, sizes, views, given, bound);
  return result;
}

void Attention::backward_into(const BackwardViews& results, const Inputs& inputs,
                              const Saved& saved, const ConstView& dout,
                              const std::optional<ConstView>& dlse, const Call& call) const {
  const BackwardGiven given{inputs, saved, dout, dlse, call};
  const Sizes sizes = check_backward(*compiled_, given);
  api::check_result("backward", "dq", results.dq, inputs.q);
  api::check_result("backward", "dk", results.dk, inputs.k);
  api::check_result("backward", "dv", results.dv, inputs.v);
  const std::vector<const Capture*> bound =
      api::bind("backward", compiled_->captures, call.captures);
  check_captures(*compiled_, results.captures, bound);
  if (results.dsinks) {
    if (!call.sinks) base::fail("backward: a view for dsinks is given, but no sinks");
    api::check_result("backward", "dsinks", *results.dsinks, *call.sinks);
  }
  run_backward(*compiled_, sizes, results, given, bound);
}

}  // namespace treadle
