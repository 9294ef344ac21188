// A call, end to end: check what was given, bind captures, run the backend, hand over the results.
// Nothing of the caller's is written before everything has succeeded.
#include "treadle/attention.h"

#include <algorithm>
#include <sstream>

#include "api/call.h"
#include "api/check.h"
#include "base/error.h"
#include "ir/print.h"
#include "reference/attention.h"

namespace treadle {
namespace {

// Each line on its own, by two columns to the right.
std::string indented(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += "  " + line + "\n";
  return result;
}

}  // namespace

Forward Attention::forward(const Inputs& inputs, const Call& call) const {
  const Shapes shapes = api::shapes_of(*compiled_, "forward", inputs);
  Forward result{Tensor(shapes.out.dtype, shapes.out.shape), Tensor(), Tensor()};
  ForwardViews views{result.out.view(), std::nullopt, std::nullopt};
  if (call.lse) {
    result.lse = Tensor(shapes.lse.dtype, shapes.lse.shape);
    views.lse = result.lse;
  }
  if (call.max) {
    result.max = Tensor(shapes.max.dtype, shapes.max.shape);
    views.max = result.max;
  }
  api::run_forward(*compiled_, "forward", views, inputs, call);
  return result;
}

void Attention::forward_into(const ForwardViews& results, const Inputs& inputs,
                             const Call& call) const {
  const Shapes shapes = api::shapes_of(*compiled_, "forward", inputs);
  api::check_result("forward", "out", results.out, shapes.out);
  if (results.lse) api::check_result("forward", "lse", *results.lse, shapes.lse);
  if (results.max) api::check_result("forward", "max", *results.max, shapes.max);
  api::run_forward(*compiled_, "forward", results, inputs, call);
}

Layout Attention::layout(const TensorSpec& q, const TensorSpec& k, const TensorSpec& v,
                         const Call& call) const {
  const api::Extents e = api::check_inputs("layout", q, k, v);
  if (compiled_->backend != Backend::cpu)
    base::fail("layout: the reference has no use for a layout; Backend::cpu has");
  const std::vector<Capture> bound = api::bind("layout", compiled_->captures, call.captures);
  return compiled_->cpu->make_layout({e.batch, e.heads, e.queries, e.keys},
                                     reference::compute_type(q.dtype, k.dtype, v.dtype),
                                     api::bindings_of(*compiled_, bound), *api::executor_of(call));
}

Layout Attention::layout(const Inputs& inputs, const Call& call) const {
  return layout(api::spec_of(inputs.q), api::spec_of(inputs.k), api::spec_of(inputs.v), call);
}

std::int64_t Shapes::saved_bytes(Save save) const {
  if (save == Save::nothing) return 0;
  const auto bytes = [](const TensorSpec& spec) {
    return count_of(spec.shape) * static_cast<std::int64_t>(size_of(spec.dtype));
  };
  return bytes(out) + bytes(lse);
}

Shapes Attention::shapes(const TensorSpec& q, const TensorSpec& k, const TensorSpec& v) const {
  return api::shapes_of(*compiled_, "shapes", q, k, v);
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
