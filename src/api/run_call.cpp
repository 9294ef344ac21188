// Calls as requests to the backend, whose stages are in backend/cpu/call.cpp.
//
// In: checked inputs and results. Out: results. Most calls are one part (api/positions.h) and one
// request; forward_parts() and backward_parts() run the others.
#include "api/run_call.h"

#include <limits>

#include "api/add.h"
#include "api/call.h"
#include "api/check.h"
#include "api/positions.h"
#include "api/sinks.h"
#include "base/copy.h"
#include "base/element.h"
#include "base/error.h"

namespace treadle::api {
namespace {

using backend::Sizes;
using layout::Range;

Tensor tensor_like(const View& view) { return {view.dtype(), view.shape()}; }

template <class Void>
BasicView<Void> queries_of(const BasicView<Void>& all, const Part& part) {
  return rows_of(all, part.batch, part.query_rows);
}

// What all requests of a call share.
struct Runner {
  std::string_view name;
  const Attention::Compiled& compiled;
  const Call& call;
  const Sizes& sizes;  // of all parts
  const std::vector<double>& sinks;
  const backend::Bindings& bound;
  const std::optional<base::DropoutRule> dropout;
  const std::vector<Part>& parts;

  // `room` has the call's captures, and gets the rest.
  Runner(std::string_view of, const Attention::Compiled& with, const Call& what, const Sizes& all,
         CallRoom& room)
      : name(of),
        compiled(with),
        call(what),
        sizes(all),
        sinks(room.sinks),
        bound(room.bindings),
        dropout(base::dropout_rule(of, what.dropout)),
        parts(room.parts) {
    find_sinks(name, call.sinks, sizes, room.sinks);
    find_bindings(compiled.program, room.bound, room.bindings);
    find_parts(name, call, sizes, room.parts);
    if (call.layout.empty()) return;
    check_layout(name, compiled.mask, only_part(name, parts, "a layout is").sizes, call.layout);
  }

  [[nodiscard]] bool is_whole() const { return parts.front().is_whole(sizes); }
  [[nodiscard]] backend::Request request(const Part& part, const Inputs& inputs) const {
    return {name,
            part.sizes,
            inputs,
            scale_of(compiled, sizes.dim),
            bound,
            call.layout,
            workers_of(name, call),
            sinks,
            dropout ? &*dropout : nullptr};
  }
  // The entries of k and v that a part reads.
  [[nodiscard]] Range key_batch(const Part& part) const {
    return sizes.key_batch == 1 ? Range(1) : part.batch;
  }
  template <class Void>
  [[nodiscard]] BasicView<Void> keys_of(const BasicView<Void>& all, const Part& part) const {
    return rows_of(all, key_batch(part), part.key_rows);
  }
  [[nodiscard]] Inputs inputs(const Part& part, const Inputs& all) const {
    return {queries_of(all.q, part), keys_of(all.k, part), keys_of(all.v, part)};
  }
};

// What rows that see nothing have: their head's sink, or -inf.
void fill_unseen(Tensor& rows, const std::vector<double>& sinks) {
  const std::int64_t heads = rows.size(1), queries = rows.size(2);
  for (std::int64_t i = 0; i < rows.count(); ++i) {
    const auto head = static_cast<std::size_t>(i / queries % heads);
    const double nothing = sinks.empty() ? -std::numeric_limits<double>::infinity() : sinks[head];
    base::store_double(rows.view().data(), rows.dtype(), i, nothing);
  }
}

// All parts together. In memory of its own: results may lie where another part reads.
void forward_parts(const Runner& runner, const ForwardViews& results, const Inputs& inputs) {
  Tensor out = tensor_like(results.out);
  std::optional<Tensor> lse, max;
  if (results.lse) fill_unseen(lse.emplace(tensor_like(*results.lse)), runner.sinks);
  if (results.max) fill_unseen(max.emplace(tensor_like(*results.max)), {});
  std::vector<Inputs> own;
  std::vector<ForwardViews> views;
  std::vector<backend::ForwardRequest> requests;
  own.reserve(runner.parts.size());  // requests refer to both
  views.reserve(runner.parts.size());
  for (const Part& part : runner.parts) {
    own.push_back(runner.inputs(part, inputs));
    views.push_back({queries_of(out.view(), part), std::nullopt, std::nullopt});
    if (lse) views.back().lse = queries_of(lse->view(), part);
    if (max) views.back().max = queries_of(max->view(), part);
    requests.push_back({runner.request(part, own.back()), views.back()});
  }
  runner.compiled.backend->forward(requests);
  const ConstView done = out;
  base::copy(results.out, done);
  if (lse) base::copy(*results.lse, *lse);
  if (max) base::copy(*results.max, *max);
}

// Gradients of keys that batch entries share, and of captures, are the sums of those of all parts, in
// their order: in the compute type and in f64, rounded once.
void backward_parts(const Runner& runner, const BackwardViews& results, const Saved& saved,
                    const BackwardGiven& given) {
  const bool shared = runner.sizes.key_batch == 1 && runner.parts.size() > 1;
  const DType compute = runner.sizes.compute;
  Tensor dq = tensor_like(results.dq);
  Tensor dk(shared ? compute : results.dk.dtype(), results.dk.shape());
  Tensor dv(shared ? compute : results.dv.dtype(), results.dv.shape());
  std::vector<Tensor> captured;
  for (const CaptureView& view : results.captures)
    captured.emplace_back(DType::f64, view.gradient.shape());
  Tensor wide_k, wide_v;  // which hold the same numbers
  Inputs inputs = given.inputs;
  if (shared) {
    wide_k = base::convert(inputs.k, compute);
    wide_v = base::convert(inputs.v, compute);
    inputs.k = wide_k;
    inputs.v = wide_v;
  }
  for (const Part& part : runner.parts) {
    if (part.sizes.queries.empty() || part.sizes.keys.empty()) continue;
    const Inputs own = runner.inputs(part, inputs);
    const Saved own_saved{queries_of(saved.out, part), queries_of(saved.lse, part)};
    const ConstView dout = queries_of(given.dout, part);
    std::optional<ConstView> dlse;
    if (given.dlse) dlse = queries_of(*given.dlse, part);
    const View all_dk = runner.keys_of(dk.view(), part), all_dv = runner.keys_of(dv.view(), part);
    BackwardViews views{queries_of(dq.view(), part), all_dk, all_dv, {}, std::nullopt};
    Tensor part_dk, part_dv;
    if (shared) {
      views.dk = part_dk = tensor_like(all_dk);
      views.dv = part_dv = tensor_like(all_dv);
    }
    std::vector<Tensor> part_captured;
    for (std::size_t i = 0; i < captured.size(); ++i) {
      part_captured.emplace_back(DType::f64, captured[i].shape());
      views.captures.push_back({results.captures[i].name, part_captured.back().view()});
    }
    runner.compiled.backend->backward({runner.request(part, own), own_saved, dout, dlse, views});
    if (shared) {
      add(all_dk, part_dk);
      add(all_dv, part_dv);
    }
    for (std::size_t i = 0; i < captured.size(); ++i) add(captured[i].view(), part_captured[i]);
  }
  const std::vector<ConstView> done(captured.begin(), captured.end());
  const ConstView done_q = dq, done_k = dk, done_v = dv;  // need memory, copies do not
  base::copy(results.dq, done_q);
  base::copy(results.dk, done_k);
  base::copy(results.dv, done_v);
  for (std::size_t i = 0; i < done.size(); ++i) base::copy(results.captures[i].gradient, done[i]);
}

}  // namespace

void run_forward(std::string_view name, const Attention::Compiled& compiled, const Sizes& sizes,
                 const ForwardViews& results, const Inputs& inputs, const Call& call) {
  const auto room = compiled.rooms.take();
  bind(name, compiled.captures, call.captures, room->bound);
  const Runner runner(name, compiled, call, sizes, *room);
  if (!runner.is_whole()) return forward_parts(runner, results, inputs);
  const backend::ForwardRequest request{runner.request(runner.parts.front(), inputs), results};
  compiled.backend->forward({&request, 1});
}

void run_backward(const Attention::Compiled& compiled, const Sizes& sizes,
                  const BackwardViews& results, const BackwardGiven& given,
                  const std::vector<const Capture*>& bound) {
  const auto room = compiled.rooms.take();
  room->bound = bound;
  const Runner runner("backward", compiled, given.call, sizes, *room);
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
  const Saved& saved = recompute ? recomputed : given.saved;
  // Before anything is written: results may lie where it is read.
  std::vector<double> dsinks;
  if (results.dsinks) {
    dsinks = sink_gradients(runner.sinks, sizes, {saved, given.dout, given.dlse},
                            workers_of("backward", given.call));
  }
  if (runner.is_whole()) {
    compiled.backend->backward({runner.request(runner.parts.front(), given.inputs), saved,
                                given.dout, given.dlse, results});
  } else {
    backward_parts(runner, results, saved, given);
  }
  if (results.dsinks) store_dsinks(*results.dsinks, dsinks);
}

}  // namespace treadle::api
