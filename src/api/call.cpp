#include "api/call.h"

#include <algorithm>
#include <cmath>

#include "base/copy.h"
#include "base/error.h"

namespace treadle::api {

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
  return call.executor ? call.executor : default_executor();
}

Bindings bindings_of(const Attention::Compiled& compiled, const std::vector<Capture>& bound) {
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
        call, made.batch, made.heads, made.queries.count(), made.keys.count(), e.batch, e.heads,
        e.queries, e.keys);
  }
  if (layout.held()->mask != compiled.mask.hash())
    base::fail("{}: the layout was made for another mask; Attention::layout makes the one it needs",
               call);
}

Shapes shapes_of(const Attention::Compiled& compiled, std::string_view call, const TensorSpec& q,
                 const TensorSpec& k, const TensorSpec& v) {
  const Extents e = check_inputs(call, q, k, v);
  const DType compute = reference::compute_type(q.dtype, k.dtype, v.dtype);
  const TensorSpec row(compute, {e.batch, e.heads, e.queries});
  const std::int64_t scratch = reference::scratch_bytes(compute, e.keys, e.dim, e.value_dim);
  std::int64_t forward_scratch = scratch;
  std::int64_t backward_scratch = scratch;
  if (compiled.backend == Backend::cpu) {
    forward_scratch = compiled.cpu->scratch_bytes(compute, e.dim, e.value_dim);
    backward_scratch = compiled.cpu->backward_scratch_bytes(compute, e.keys, e.dim, e.value_dim);
  }
  return {.out = {q.dtype, {e.batch, e.heads, e.queries, e.value_dim}},
          .lse = row,
          .max = row,
          .dq = {q.dtype, q.shape},
          .dk = {k.dtype, k.shape},
          .dv = {v.dtype, v.shape},
          .forward_scratch = forward_scratch,
          .backward_scratch = backward_scratch};
}

Shapes shapes_of(const Attention::Compiled& compiled, std::string_view call, const Inputs& inputs) {
  return shapes_of(compiled, call, spec_of(inputs.q), spec_of(inputs.k), spec_of(inputs.v));
}

void run_forward(const Attention::Compiled& compiled, std::string_view name,
                 const ForwardViews& results, const Inputs& inputs, const Call& call) {
  const Extents e = check_inputs(name, spec_of(inputs.q), spec_of(inputs.k), spec_of(inputs.v));
  check_layout(name, compiled, e, call.layout);
  const std::vector<Capture> bound = bind(name, compiled.captures, call.captures);
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

}  // namespace treadle::api
