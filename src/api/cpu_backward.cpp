#include <algorithm>
#include <mutex>

#include "api/call_memory.h"
#include "api/capture_sums.h"
#include "api/cpu.h"
#include "api/process.h"
#include "base/copy.h"
#include "plan/mod_facts.h"

namespace treadle::api {
namespace {

// Whether a result lies where something is read.
bool collide(const BackwardViews& results, const std::vector<ConstView>& read) {
  std::vector<ConstView> written{results.dq, results.dk, results.dv};
  for (const CaptureView& capture : results.captures) written.emplace_back(capture.gradient);
  return std::ranges::any_of(written, [&](const ConstView& w) {
    return std::ranges::any_of(read, [&](const ConstView& r) { return overlaps(w, r); });
  });
}

void fill_with_zeros(const BackwardViews& results) {
  const auto clear = [](const View& view) { base::copy(view, Tensor(view.dtype(), view.shape())); };
  clear(results.dq);
  clear(results.dk);
  clear(results.dv);
  for (const CaptureView& capture : results.captures) clear(capture.gradient);
}

}  // namespace

std::int64_t Cpu::backward_scratch_bytes(DType compute, std::int64_t keys, std::int64_t dim,
                                         std::int64_t value_dim) const {
  const plan::TilePlan plan = plan::plan_tile(target_, compute, dim, value_dim, plan::most_vectors);
  const std::int64_t lanes = target_.lanes(compute);
  const auto padded = [&](std::int64_t length) { return (length + lanes - 1) / lanes * lanes; };
  const std::int64_t rows = padded(dim) + padded(value_dim);
  const std::int64_t group = plan::tiles_per_backward_group(plan) * plan.width();
  const std::int64_t block = plan.key_block + 24;
  const std::int64_t tiles = group * (2 * dim + value_dim + rows + 2 * block + 3);
  const std::int64_t sums = (std::min(keys, plan::chunk_length(keys)) + 2 * block) * rows;
  const std::int64_t gifts = static_cast<std::int64_t>(derivative_.contributions.size()) * 3 *
                             plan.key_block * plan.width();
  return (tiles + sums + gifts + plan.width() * (dim + 2) +
          plan.key_block * (dim + value_dim + 1)) *
         static_cast<std::int64_t>(size_of(compute));
}

std::shared_ptr<run::BackwardKernels> Cpu::backward_kernels(const Inputs& inputs,
                                                            const Bindings& bound,
                                                            const layout::Layout& layout) const {
  std::shared_ptr<run::ForwardKernels> forward = kernels(inputs, bound, layout);
  plan::ModFacts facts;
  facts.checked = false;
  if (score_.kind == plan::ScoreForm::Kind::general || !derivative_.contributions.empty()) {
    facts = plan::find_facts(derivative_.graph, bound.derivative, extent_of(inputs),
                             layout.tiles().order());
  }
  const int vectors = plan::vectors_for(target_, compute_type(inputs), layout.tiles().height());
  const std::unique_lock lock(mutex_);
  for (const std::shared_ptr<run::BackwardKernels>& known : known_backward_) {
    if (&known->forward() == forward.get() && known->derivative_facts() == facts &&
        known->plan().vectors == vectors)
      return known;
  }
  known_backward_.push_back(std::make_shared<run::BackwardKernels>(
      process().engine, std::move(forward), derivative_, std::move(facts), vectors));
  return known_backward_.back();
}

bool Cpu::backward(const Inputs& inputs, const Saved& saved, const ConstView& dout,
                   const std::optional<ConstView>& dlse, double scale, const Bindings& bound,
                   const Layout& given, const BackwardViews& results, Executor& executor) const {
  const layout::Extent extent = extent_of(inputs);
  if (extent.batch == 0 || extent.heads == 0 || extent.queries.count() == 0 ||
      extent.keys.count() == 0) {
    fill_with_zeros(results);
    return true;
  }
  const Layout made =
      given.empty() ? make_layout(extent, compute_type(inputs), bound, executor) : given;
  const layout::Layout& layout = made.held()->layout;
  const std::shared_ptr<run::BackwardKernels> kernels = backward_kernels(inputs, bound, layout);

  std::vector<ConstView> read{inputs.q, inputs.k, inputs.v, saved.out, saved.lse, dout};
  if (dlse) read.push_back(*dlse);
  for (const auto* views : {&bound.score, &bound.mask, &bound.derivative})
    read.insert(read.end(), views->begin(), views->end());
  const run::ForwardSpec& spec = kernels->spec();
  const bool aside = spec.score_facts.checked || spec.mask_facts.checked ||
                     kernels->derivative_facts().checked || collide(results, read);
  const auto place = [&](const View& view) { return Result(view, aside || !has_unit_rows(view)); };
  const Result dq = place(results.dq), dk = place(results.dk), dv = place(results.dv);
  const CaptureSums captures(derivative_, results.captures, spec.compute, !aside, executor);
  const Rows q(inputs.q), k(inputs.k), v(inputs.v), out(saved.out), gradient(dout);

  const run::BackwardProblem problem{.q = q.view(),
                                     .k = k.view(),
                                     .v = v.view(),
                                     .out = out.view(),
                                     .dout = gradient.view(),
                                     .lse = saved.lse,
                                     .dlse = dlse,
                                     .dq = dq.view(),
                                     .dk = dk.view(),
                                     .dv = dv.view(),
                                     .scale = scale,
                                     .layout = &layout,
                                     .score_words = words_of(bound.score),
                                     .mask_words = words_of(bound.mask),
                                     .derivative_words = words_of(bound.derivative),
                                     .captured = captures.sums(),
                                     .gradient_strides = captures.strides()};
  const run::BackwardDone done = run::backward(*kernels, problem, executor, process().scratch);
  if (done.poisoned) report(inputs, scale, bound, layout, *done.poisoned);
  if (done.not_a_number) return false;
  for (const Result* result : {&dq, &dk, &dv}) result->deliver();
  captures.deliver();
  return true;
}

}  // namespace treadle::api
