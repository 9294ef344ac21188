// Where a call reads and writes, decided once per call.
#include "backend/cpu/call_memory.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/memory_range.h"
#include "plan/capture_descriptors.h"

namespace treadle::backend::cpu {
namespace {

// Whether a result lies where something is read.
class Collision {
 public:
  // What is written. The ranges outlive this.
  explicit Collision(std::span<const base::MemoryRange> written) : written_(written) {}

  void read(const ConstView& view) {
    const base::MemoryRange range = base::memory_of(view);
    found_ = found_ || std::ranges::any_of(
                           written_, [&](const base::MemoryRange& w) { return w.overlaps(range); });
  }
  void read(const Inputs& inputs) {
    read(inputs.q);
    read(inputs.k);
    read(inputs.v);
  }
  void read(const std::vector<ConstView>& views) {
    for (const ConstView& view : views) read(view);
  }
  [[nodiscard]] bool found() const { return found_; }

 private:
  std::span<const base::MemoryRange> written_;
  bool found_ = false;
};

bool collides(const ForwardRequest& call) {
  std::array<base::MemoryRange, 3> written;
  std::size_t results = 0;
  written[results++] = base::memory_of(call.results.out);
  if (call.results.lse) written[results++] = base::memory_of(*call.results.lse);
  if (call.results.max) written[results++] = base::memory_of(*call.results.max);
  const std::span<const base::MemoryRange> all = written;
  Collision collision(all.first(results));
  collision.read(call.inputs);
  collision.read(call.bound.score_mod);
  collision.read(call.bound.mask);
  return collision.found();
}

bool collides(const BackwardRequest& call) {
  std::vector<base::MemoryRange> written;
  for (const View* view : {&call.results.dq, &call.results.dk, &call.results.dv})
    written.push_back(base::memory_of(*view));
  for (const CaptureView& capture : call.results.captures)
    written.push_back(base::memory_of(capture.gradient));
  Collision collision(written);
  collision.read(call.inputs);
  collision.read(call.saved.out);
  collision.read(call.saved.lse);
  collision.read(call.dout);
  if (call.dlse) collision.read(*call.dlse);
  for (const auto* views : {&call.bound.score_mod, &call.bound.mask, &call.bound.derivative})
    collision.read(*views);
  return collision.found();
}

PlacedResult rows_at(const View& view, bool in_private, DType type) {
  return {view, in_private || type != view.dtype() || !has_contiguous_rows(view), type};
}
PlacedResult rows_at(const View& view, bool in_private) {
  return rows_at(view, in_private, view.dtype());
}

PlacedResult gradient_at(const View& view, DType compute, bool in_private, bool adds_up) {
  return rows_at(view, in_private, adds_up ? compute : view.dtype());
}

std::optional<PlacedResult> place(const std::optional<View>& view, bool in_private) {
  if (!view) return std::nullopt;
  return PlacedResult(*view, in_private);
}

std::variant<run::TensorKeys, run::PagedSource, const run::KeySource*> source_of(
    const ForwardRequest& call, const ConstView& k, const ConstView& v) {
  if (call.keys != nullptr) return call.keys;
  if (call.pages == nullptr) return run::TensorKeys(k, v, call.sizes.keys.begin);
  return run::PagedSource(
      run::PagePool{k, call.pages->k_scales}, run::PagePool{v, call.pages->v_scales},
      run::PageList{call.pages->table, call.pages->stride, k.size(2), call.pages->first},
      call.sizes.keys);
}

}  // namespace

ForwardMemory::ForwardMemory(const ForwardRequest& call, bool may_fail)
    : q_(call.inputs.q),
      k_(call.inputs.k),
      v_(call.inputs.v),
      keys_(source_of(call, k_.view(), v_.view())),
      private_(may_fail || (!call.apart && collides(call))),
      out_(rows_at(call.results.out, private_)),
      lse_(place(call.results.lse, private_)),
      max_(place(call.results.max, private_)) {}

const run::KeySource& ForwardMemory::keys() const {
  if (const auto* given = std::get_if<const run::KeySource*>(&keys_)) return **given;
  if (const auto* pages = std::get_if<run::PagedSource>(&keys_)) return *pages;
  return std::get<run::TensorKeys>(keys_);
}

run::ForwardProblem ForwardMemory::problem(const ForwardRequest& call) const {
  const auto view_of = [](const std::optional<PlacedResult>& result) {
    return result ? std::optional<View>(result->view()) : std::nullopt;
  };
  return {.q = q_.view(),
          .keys = keys(),
          .out = out_.view(),
          .lse = view_of(lse_),
          .max = view_of(max_),
          .scale = call.scale,
          .score_captures = {},
          .sinks = call.sinks,
          .dropout = plan::DropoutArgs(call.dropout),
          .states = call.states};
}

void ForwardMemory::deliver() const {
  out_.deliver();
  if (lse_) lse_->deliver();
  if (max_) max_->deliver();
}

BackwardMemory::BackwardMemory(const BackwardRequest& call, const Program& program,
                               const Forms& forms, bool may_fail, bool adds_up)
    : score_captures_(score_memory(forms, call.bound)),
      private_(call.share == nullptr && (may_fail || collides(call))),
      dq_(gradient_at(call.results.dq, call.sizes.compute, private_, adds_up)),
      dk_(gradient_at(call.results.dk, call.sizes.compute, private_, adds_up)),
      dv_(gradient_at(call.results.dv, call.sizes.compute, private_, adds_up)),
      captures_(program.derivative, call.results.captures, call.sizes.compute, !private_),
      q_(call.inputs.q),
      k_(call.inputs.k),
      v_(call.inputs.v),
      out_(call.saved.out),
      dout_(call.dout),
      keys_(k_.view(), v_.view(), call.sizes.keys.begin),
      given_(call.keys) {}

std::vector<plan::CaptureReach> BackwardMemory::reaches() const {
  std::vector<plan::CaptureReach> reaches;
  for (const run::CapturedSum& sum : captures_.sums()) reaches.push_back(sum.reach);
  return reaches;
}

run::BackwardProblem BackwardMemory::problem(const BackwardRequest& call) const {
  return {.q = q_.view(),
          .out = out_.view(),
          .dout = dout_.view(),
          .keys = keys(),
          .lse = call.saved.lse,
          .dlse = call.dlse,
          .dq = dq_.view(),
          .dk = dk_.view(),
          .dv = dv_.view(),
          .scale = call.scale,
          .score_captures = plan::capture_descriptors(score_captures_),
          .derivative_captures = plan::capture_descriptors(call.bound.derivative),
          .captured = captures_.sums(),
          .gradient_strides = captures_.strides(),
          .dropout = plan::DropoutArgs(call.dropout),
          .delta = call.delta == nullptr ? std::nullopt : std::optional<ConstView>(*call.delta),
          .share = call.share};
}

void BackwardMemory::deliver() const {
  for (const PlacedResult* result : {&dq_, &dk_, &dv_}) result->deliver();
  captures_.deliver();
}

void fill_with_zeros(const BackwardViews& results) {
  std::vector<PlacedResult> zeros;
  zeros.reserve(3 + results.captures.size());
  for (const View* view : {&results.dq, &results.dk, &results.dv}) zeros.emplace_back(*view, true);
  for (const CaptureView& capture : results.captures) zeros.emplace_back(capture.gradient, true);
  for (const PlacedResult& result : zeros) result.deliver();
}

}  // namespace treadle::backend::cpu
