// Attention::backward: check, bind, run, and where the backend cannot tell, ask the reference.
#include <algorithm>

#include "api/call.h"
#include "api/check.h"
#include "base/copy.h"
#include "base/error.h"

namespace treadle {
namespace {

// All that a call is given but its results.
struct Given {
  const Inputs& inputs;
  const Saved& saved;
  const ConstView& dout;
  const std::optional<ConstView>& dlse;
  const Call& call;
};

void check(const Attention::Compiled& compiled, const Given& given, const Shapes& shapes) {
  if (compiled.save == Save::lse) {
    api::check_tensor("backward", "out", given.saved.out, shapes.out);
    if (given.saved.lse.shape() == Dims{0}) {
      base::fail("backward: saved.lse is empty; forward returns it when Call::lse is set");
    }
    api::check_tensor("backward", "lse", given.saved.lse, shapes.lse);
  }
  api::check_tensor("backward", "dout", given.dout, shapes.out);
  if (given.dlse) api::check_tensor("backward", "dlse", *given.dlse, shapes.lse);
  api::check_layout("backward", compiled,
                    api::check_inputs("backward", api::spec_of(given.inputs.q),
                                      api::spec_of(given.inputs.k), api::spec_of(given.inputs.v)),
                    given.call.layout);
}

void run_reference(const Attention::Compiled& compiled, const BackwardViews& results,
                   const Given& given, const Saved& saved, const std::vector<Capture>& bound) {
  reference::Derivative derivative{.joint = compiled.joint,
                                   .memory = api::memory_of(compiled.joint.graph.slots(), bound),
                                   .wanted = {},
                                   .wanted_memory = {}};
  for (const CaptureView& view : results.captures)
    derivative.wanted.push_back({view.name, view.gradient.dtype(), view.gradient.rank()});
  derivative.wanted_memory = api::memory_of(derivative.wanted, bound);
  const reference::Backward done = reference::backward(
      api::problem_of(compiled, given.inputs, bound),
      {.out = saved.out, .lse = saved.lse, .dout = given.dout, .dlse = given.dlse}, derivative,
      *api::executor_of(given.call));
  base::copy(results.dq, done.dq);
  base::copy(results.dk, done.dk);
  base::copy(results.dv, done.dv);
  for (std::size_t i = 0; i < results.captures.size(); ++i)
    base::copy(results.captures[i].gradient, done.captured[i]);
}

// Everything has been checked.
void run_backward(const Attention::Compiled& compiled, const BackwardViews& results,
                  const Given& given, const Shapes& shapes, const std::vector<Capture>& bound) {
  Saved saved = given.saved;
  Tensor out, lse;
  if (compiled.save == Save::nothing) {
    out = Tensor(shapes.out.dtype, shapes.out.shape);
    lse = Tensor(shapes.lse.dtype, shapes.lse.shape);
    const ForwardViews views{out.view(), lse.view(), std::nullopt};
    api::run_forward(compiled, "backward", views, given.inputs, given.call);
    saved = {out, lse};
  }
  if (compiled.backend == Backend::cpu &&
      compiled.cpu->backward(given.inputs, saved, given.dout, given.dlse,
                             api::scale_of(compiled, given.inputs.q.size(3)),
                             api::bindings_of(compiled, bound), given.call.layout, results,
                             *api::executor_of(given.call)))
    return;
  // Something is not a number, if this is not the reference anyway: it tells where that belongs.
  run_reference(compiled, results, given, saved, bound);
}

// Views for exactly the gradients that were asked for when compiled.
void check_captures(const Attention::Compiled& compiled, const std::vector<CaptureView>& views,
                    const std::vector<Capture>& bound) {
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
                      api::spec_of(capture->view()));
  }
}

}  // namespace

const Tensor& Backward::of(std::string_view name) const {
  const auto found = std::ranges::find(captures, name, &CaptureGradient::name);
  if (found == captures.end()) base::fail("backward: no gradient of \"{}\" was asked for", name);
  return found->gradient;
}

Backward Attention::backward(const Inputs& inputs, const Saved& saved, const ConstView& dout,
                             const std::optional<ConstView>& dlse, const Call& call) const {
  const Given given{inputs, saved, dout, dlse, call};
  const Shapes shapes = api::shapes_of(*compiled_, "backward", inputs);
  check(*compiled_, given, shapes);
  const std::vector<Capture> bound = api::bind("backward", compiled_->captures, call.captures);
  Backward result{Tensor(shapes.dq.dtype, shapes.dq.shape),
                  Tensor(shapes.dk.dtype, shapes.dk.shape),
                  Tensor(shapes.dv.dtype, shapes.dv.shape),
                  {}};
  BackwardViews views{result.dq, result.dk, result.dv, {}};
  for (const std::string& name : compiled_->gradients) {
    const ConstView capture = std::ranges::find(bound, name, &Capture::name)->view();
    result.captures.push_back({name, Tensor(capture.dtype(), capture.shape())});
    views.captures.push_back({name, result.captures.back().gradient});
  }
  run_backward(*compiled_, views, given, shapes, bound);
  return result;
}

void Attention::backward_into(const BackwardViews& results, const Inputs& inputs,
                              const Saved& saved, const ConstView& dout,
                              const std::optional<ConstView>& dlse, const Call& call) const {
  const Given given{inputs, saved, dout, dlse, call};
  const Shapes shapes = api::shapes_of(*compiled_, "backward", inputs);
  api::check_result("backward", "dq", results.dq, shapes.dq);
  api::check_result("backward", "dk", results.dk, shapes.dk);
  api::check_result("backward", "dv", results.dv, shapes.dv);
  const std::vector<Capture> bound = api::bind("backward", compiled_->captures, call.captures);
  check_captures(*compiled_, results.captures, bound);
  check(*compiled_, given, shapes);
  run_backward(*compiled_, results, given, shapes, bound);
}

}  // namespace treadle
