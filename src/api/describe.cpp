// What a compiled function says about itself and about calls, without running one.
#include <algorithm>
#include <sstream>

#include "api/call.h"
#include "api/check.h"
#include "api/compiled.h"
#include "api/positions.h"
#include "base/compute_type.h"
#include "base/error.h"
#include "ir/print.h"

namespace treadle {
namespace {

// Each line on its own, by two columns to the right.
std::string indented(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += "  " + line + "\n";
  return result;
}

Layout layout_of(const Attention::Compiled& compiled, const api::TensorShape& q,
                 const api::TensorShape& k, const api::TensorShape& v, const Call& call) {
  const auto parts = api::parts_of("layout", call, api::check_inputs("layout", q, k, v));
  const backend::Sizes& sizes = api::only_part("layout", parts, "a layout is").sizes;
  const std::vector<const Capture*> bound = api::bind("layout", compiled.captures, call.captures);
  return compiled.backend->layout(sizes, api::bindings_of(compiled.program, bound),
                                  api::workers_of("layout", call));
}

}  // namespace

Layout Attention::layout(const TensorSpec& q, const TensorSpec& k, const TensorSpec& v,
                         const Call& call) const {
  return layout_of(*compiled_, q, k, v, call);
}

Layout Attention::layout(const Inputs& inputs, const Call& call) const {
  return layout_of(*compiled_, inputs.q, inputs.k, inputs.v, call);
}

void Attention::prepare(const std::vector<CallSpec>& calls, const Call& call) const {
  const std::vector<const Capture*> bound =
      api::bind("prepare", compiled_->captures, call.captures);
  const backend::Bindings bindings = api::bindings_of(compiled_->program, bound);
  const auto dropout = base::dropout_rule("prepare", call.dropout);
  std::vector<backend::Sizes> sizes;  // of all of them, before anything is compiled
  for (const CallSpec& spec : calls) {
    const backend::Sizes all = api::check_inputs("prepare", spec.q, spec.k, spec.v);
    if (spec.backward) api::check_differentiable("prepare", spec.k.dtype, spec.v.dtype);
    const auto parts = api::parts_of("prepare", call, all);
    sizes.push_back(api::only_part("prepare", parts, "calls are prepared").sizes);
    api::check_layout("prepare", compiled_->mask, sizes.back(), call.layout);
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto blank = [](const TensorSpec& spec) {
      return ConstView(static_cast<const void*>(nullptr), spec.dtype, Dims{0});
    };
    const Inputs inputs{blank(calls[i].q), blank(calls[i].k), blank(calls[i].v)};
    compiled_->backend->prepare({"prepare",
                                 sizes[i],
                                 inputs,
                                 api::scale_of(*compiled_, sizes[i].dim),
                                 bindings,
                                 call.layout,
                                 api::workers_of("prepare", call),
                                 {},
                                 dropout ? &*dropout : nullptr},
                                calls[i].backward);
  }
}

Shapes Attention::shapes(const TensorSpec& q, const TensorSpec& k, const TensorSpec& v) const {
  const backend::Sizes sizes = api::check_inputs("shapes", q, k, v);
  const TensorSpec row(sizes.compute, {sizes.batch, sizes.heads, sizes.queries.count()});
  const auto gradient = [&](const TensorSpec& of) {
    return TensorSpec(base::holds_gradients(of.dtype) ? of.dtype : sizes.compute, of.shape);
  };
  return {.out = {q.dtype, {sizes.batch, sizes.heads, sizes.queries.count(), sizes.value_dim}},
          .lse = row,
          .max = row,
          .dq = {q.dtype, q.shape},
          .dk = gradient(k),
          .dv = gradient(v),
          .forward_scratch = compiled_->backend->forward_scratch(sizes),
          .backward_scratch = compiled_->backend->backward_scratch(sizes),
          .forward_kept = compiled_->backend->forward_kept(sizes)};
}

std::int64_t Shapes::saved_bytes(Save save) const {
  if (save == Save::nothing) return 0;
  const auto bytes = [](const TensorSpec& spec) {
    return count_of(spec.shape) * static_cast<std::int64_t>(size_of(spec.dtype));
  };
  return bytes(out) + bytes(lse);
}

const Tensor& Backward::of(std::string_view name) const {
  const auto found = std::ranges::find(captures, name, &CaptureGradient::name);
  if (found == captures.end()) base::fail("backward: no gradient of \"{}\" was requested", name);
  return found->gradient;
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
  const backend::Program& program = compiled_->program;
  return fmt::format("score mod:\n{}mask:\n{}derivative:\n{}",
                     indented(ir::to_text(program.score_mod)), indented(ir::to_text(program.mask)),
                     indented(ir::to_text(program.derivative)));
}

}  // namespace treadle
