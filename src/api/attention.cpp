// A call, end to end: check what was given, bind captures, run the backend, hand over the results.
// Nothing of the caller's is written before everything has succeeded.
#include "treadle/attention.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "api/check.h"
#include "api/compiled.h"
#include "base/copy.h"
#include "base/error.h"
#include "ir/print.h"
#include "reference/attention.h"

namespace treadle {
namespace {

using api::Extents;

std::vector<ConstView> memory_of(std::span<const ir::Slot> slots,
                                 const std::vector<Capture>& bound) {
  std::vector<ConstView> memory;
  for (const ir::Slot& slot : slots) {
    const auto capture = std::ranges::find(bound, slot.name, &Capture::name);
    if (capture == bound.end()) base::internal_error("no capture for slot {}", slot.name);
    memory.push_back(capture->view());
  }
  return memory;
}

double scale_of(const Attention::Compiled& compiled, std::int64_t dim) {
  return compiled.scale.value_or(1.0 / std::sqrt(static_cast<double>(dim)));
}

reference::Problem problem_of(const Attention::Compiled& compiled, const Inputs& inputs,
                              const std::vector<Capture>& bound) {
  return {.q = inputs.q,
          .k = inputs.k,
          .v = inputs.v,
          .scale = scale_of(compiled, inputs.q.size(3)),
          .score_mod = {compiled.score_mod, memory_of(compiled.score_mod.slots(), bound)},
          .mask = {compiled.mask, memory_of(compiled.mask.slots(), bound)}};
}

std::shared_ptr<Executor> executor_of(const Call& call) {
  return call.executor ? call.executor : api::default_executor();
}

api::Bindings bindings_of(const Attention::Compiled& compiled, const std::vector<Capture>& bound) {
  return {.score_mod = memory_of(compiled.score_mod.slots(), bound),
          .score = memory_of(compiled.cpu->score().graph.slots(), bound),
          .mask = memory_of(compiled.mask.slots(), bound),
          .derivative = memory_of(compiled.joint.graph.slots(), bound)};
}

void check_layout(std::string_view call, const Attention::Compiled& compiled, const Extents& e,
                  const Layout& layout) {
  if (layout.empty()) return;
  if (compiled.backend != Backend::cpu)
    base::fail("{}: a layout is given, which the reference has no use for", call);
  const layout::Extent& made = layout.held()->layout.extent();
  const layout::Extent wanted{e.batch, e.heads, e.queries, e.keys};
  if (made != wanted) {
    base::fail(
        "{}: the layout is for batch {}, {} heads, {} queries and {} keys, the inputs have batch "
        "{}, {} heads, {} "
        "queries and {} keys; they must be equal",
        call, made.batch, made.heads, made.queries, made.keys, e.batch, e.heads, e.queries, e.keys);
  }
  if (layout.held()->mask != compiled.mask.hash())
    base::fail("{}: the layout was made for another mask; Attention::layout makes the one it needs",
               call);
}

Shapes shapes_of(const Attention::Compiled& compiled, std::string_view call, const TensorSpec& q,
                 const TensorSpec& k, const TensorSpec& v) {
  const Extents e = api::check_inputs(call, q, k, v);
  const DType compute = reference::compute_type(q.dtype, k.dtype, v.dtype);
  const TensorSpec row(compute, {e.batch, e.heads, e.queries});
  const std::int64_t scratch = reference::scratch_bytes(compute, e.keys, e.dim, e.value_dim);
  const std::int64_t forward_scratch =
      compiled.backend == Backend::cpu ? compiled.cpu->scratch_bytes(compute, e.dim, e.value_dim)
                                       : scratch;
  return {.out = {q.dtype, {e.batch, e.heads, e.queries, e.value_dim}},
          .lse = row,
          .max = row,
          .dq = {q.dtype, q.shape},
          .dk = {k.dtype, k.shape},
          .dv = {v.dtype, v.shape},
          .forward_scratch = forward_scratch,
          .backward_scratch = scratch};
}

Shapes shapes_of(const Attention::Compiled& compiled, std::string_view call, const Inputs& inputs) {
  return shapes_of(compiled, call, api::spec_of(inputs.q), api::spec_of(inputs.k),
                   api::spec_of(inputs.v));
}

void run_forward(const Attention::Compiled& compiled, const ForwardViews& results,
                 const Inputs& inputs, const Call& call) {
  const Extents e = api::check_inputs("forward", api::spec_of(inputs.q), api::spec_of(inputs.k),
                                      api::spec_of(inputs.v));
  check_layout("forward", compiled, e, call.layout);
  const std::vector<Capture> bound = api::bind("forward", compiled.captures, call.captures);
  if (compiled.backend == Backend::cpu) {
    compiled.cpu->forward(inputs, scale_of(compiled, e.dim), bindings_of(compiled, bound),
                          call.layout, results, *executor_of(call));
    return;
  }
  const reference::Forward done =
      reference::forward(problem_of(compiled, inputs, bound), *executor_of(call));
  base::copy(results.out, done.out);
  if (results.lse) base::copy(*results.lse, done.lse);
  if (results.max) base::copy(*results.max, done.max);
}

// Each line on its own, by two columns to the right.
std::string indented(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += "  " + line + "\n";
  return result;
}

}  // namespace

const Tensor& Backward::of(std::string_view name) const {
  const auto found = std::ranges::find(captures, name, &CaptureGradient::name);
  if (found == captures.end()) base::fail("backward: no gradient of \"{}\" was asked for", name);
  return found->gradient;
}

Forward Attention::forward(const Inputs& inputs, const Call& call) const {
  const Shapes shapes = shapes_of(*compiled_, "forward", inputs);
  Forward result{Tensor(shapes.out.dtype, shapes.out.shape), Tensor(), Tensor()};
  ForwardViews views{result.out.view(), std::nullopt, std::nullopt};
  if (compiled_->lse) {
    result.lse = Tensor(shapes.lse.dtype, shapes.lse.shape);
    views.lse = result.lse;
  }
  if (compiled_->max) {
    result.max = Tensor(shapes.max.dtype, shapes.max.shape);
    views.max = result.max;
  }
  run_forward(*compiled_, views, inputs, call);
  return result;
}

void Attention::forward_into(const ForwardViews& results, const Inputs& inputs,
                             const Call& call) const {
  const Shapes shapes = shapes_of(*compiled_, "forward", inputs);
  api::check_result("forward", "out", results.out, shapes.out);
  if (results.lse.has_value() != compiled_->lse) {
    base::fail(
        "forward: lse was {}asked for when compiled, {} view for it is given; the two go together",
        compiled_->lse ? "" : "not ", results.lse ? "a" : "no");
  }
  if (results.max.has_value() != compiled_->max) {
    base::fail(
        "forward: max was {}asked for when compiled, {} view for it is given; the two go together",
        compiled_->max ? "" : "not ", results.max ? "a" : "no");
  }
  if (results.lse) api::check_result("forward", "lse", *results.lse, shapes.lse);
  if (results.max) api::check_result("forward", "max", *results.max, shapes.max);
  run_forward(*compiled_, results, inputs, call);
}

Layout Attention::layout(const TensorSpec& q, const TensorSpec& k, const TensorSpec& v,
                         const Call& call) const {
  const Extents e = api::check_inputs("layout", q, k, v);
  if (compiled_->backend != Backend::cpu)
    base::fail("layout: the reference has no use for a layout; Backend::cpu has");
  const std::vector<Capture> bound = api::bind("layout", compiled_->captures, call.captures);
  return compiled_->cpu->make_layout({e.batch, e.heads, e.queries, e.keys},
                                     reference::compute_type(q.dtype, k.dtype, v.dtype),
                                     bindings_of(*compiled_, bound), *executor_of(call));
}

Layout Attention::layout(const Inputs& inputs, const Call& call) const {
  return layout(api::spec_of(inputs.q), api::spec_of(inputs.k), api::spec_of(inputs.v), call);
}

Backward Attention::backward(const Inputs& inputs, const Saved& saved, const ConstView& dout,
                             const std::optional<ConstView>& dlse, const Call& call) const {
  const Shapes shapes = shapes_of(*compiled_, "backward", inputs);
  api::check_tensor("backward", "out", saved.out, shapes.out);
  if (saved.lse.shape() == Dims{0}) {
    base::fail(
        "backward: no lse is given; it is what forward gives when compiled with Options::lse");
  }
  api::check_tensor("backward", "lse", saved.lse, shapes.lse);
  api::check_tensor("backward", "dout", dout, shapes.out);
  if (dlse) api::check_tensor("backward", "dlse", *dlse, shapes.lse);
  const std::vector<Capture> bound = api::bind("backward", compiled_->captures, call.captures);

  check_layout("backward", *compiled_,
               api::check_inputs("backward", api::spec_of(inputs.q), api::spec_of(inputs.k),
                                 api::spec_of(inputs.v)),
               call.layout);
  if (compiled_->backend == Backend::cpu) {
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
    if (compiled_->cpu->backward(inputs, saved, dout, dlse, scale_of(*compiled_, inputs.q.size(3)),
                                 bindings_of(*compiled_, bound), call.layout, views,
                                 *executor_of(call)))
      return result;
    // Something is not a number: the reference tells where that belongs.
  }

  reference::Derivative derivative{.joint = compiled_->joint,
                                   .memory = memory_of(compiled_->joint.graph.slots(), bound),
                                   .wanted = {},
                                   .wanted_memory = {}};
  for (const std::string& name : compiled_->gradients) {
    const Capture& capture = *std::ranges::find(bound, name, &Capture::name);
    derivative.wanted.push_back({name, capture.view().dtype(), capture.view().rank()});
  }
  derivative.wanted_memory = memory_of(derivative.wanted, bound);

  reference::Backward done =
      reference::backward(problem_of(*compiled_, inputs, bound),
                          {.out = saved.out, .lse = saved.lse, .dout = dout, .dlse = dlse},
                          derivative, *executor_of(call));
  Backward result{std::move(done.dq), std::move(done.dk), std::move(done.dv), {}};
  for (std::size_t i = 0; i < compiled_->gradients.size(); ++i) {
    result.captures.push_back({compiled_->gradients[i], std::move(done.captured[i])});
  }
  return result;
}

void Attention::backward_into(const BackwardViews& results, const Inputs& inputs,
                              const Saved& saved, const ConstView& dout,
                              const std::optional<ConstView>& dlse, const Call& call) const {
  const Shapes shapes = shapes_of(*compiled_, "backward", inputs);
  api::check_result("backward", "dq", results.dq, shapes.dq);
  api::check_result("backward", "dk", results.dk, shapes.dk);
  api::check_result("backward", "dv", results.dv, shapes.dv);
  const std::vector<Capture> bound = api::bind("backward", compiled_->captures, call.captures);
  const auto view_for = [&](const std::string& name) {
    const auto found = std::ranges::find(results.captures, name, &CaptureView::name);
    if (found == results.captures.end())
      base::fail("backward: no view for the gradient of \"{}\" is given", name);
    return found->gradient;
  };
  for (const CaptureView& given : results.captures) {
    if (std::ranges::find(compiled_->gradients, given.name) == compiled_->gradients.end()) {
      base::fail("backward: a view for the gradient of \"{}\" is given, which was not asked for",
                 given.name);
    }
    if (std::ranges::count(results.captures, given.name, &CaptureView::name) > 1) {
      base::fail("backward: two views for the gradient of \"{}\" are given", given.name);
    }
  }
  for (const std::string& name : compiled_->gradients) {
    const auto capture = std::ranges::find(bound, name, &Capture::name);
    api::check_result("backward", "the gradient of \"" + name + "\"", view_for(name),
                      api::spec_of(capture->view()));
  }
  const Backward done = backward(inputs, saved, dout, dlse, call);
  base::copy(results.dq, done.dq);
  base::copy(results.dk, done.dk);
  base::copy(results.dv, done.dv);
  for (const CaptureGradient& capture : done.captures)
    base::copy(view_for(capture.name), capture.gradient);
}

Shapes Attention::shapes(const TensorSpec& q, const TensorSpec& k, const TensorSpec& v) const {
  return shapes_of(*compiled_, "shapes", q, k, v);
}

std::vector<CaptureInfo> Attention::captures() const {
  std::vector<CaptureInfo> infos;
  for (const Capture& capture : compiled_->captures) {
    const bool gradient =
        std::ranges::find(compiled_->gradients, capture.name()) != compiled_->gradients.end();
    infos.push_back({capture.name(), capture.view().dtype(), capture.view().rank(), gradient});
  }
  return infos;
}

std::string Attention::describe() const {
  return fmt::format(
      "score mod:\n{}mask:\n{}derivative:\n{}", indented(ir::to_text(compiled_->score_mod)),
      indented(ir::to_text(compiled_->mask)), indented(ir::to_text(compiled_->joint)));
}

}  // namespace treadle
