// Calls with sequences of different lengths: each sequence is a request, all of them run together.
#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>

#include "api/add.h"
#include "api/call.h"
#include "api/check.h"
#include "api/compiled.h"
#include "api/sequences.h"
#include "api/sinks.h"
#include "base/copy.h"
#include "base/element.h"
#include "base/error.h"
#include "base/memory_range.h"
#include "treadle/attention.h"

namespace treadle {
namespace {

using api::CheckedSequences;
using api::packed_rows;
using layout::Range;

Tensor tensor_like(const View& view) { return {view.dtype(), view.shape()}; }

Dims rows_shape(const CheckedSequences& checked, std::int64_t last) {
  Dims shape{checked.sizes.queries.count(), checked.sizes.heads};
  if (last > 0) shape.push_back(last);
  return shape;
}

// Rows that belong to no request: queries before position 0.
std::vector<std::int64_t> padding_of(const CheckedSequences& checked) {
  std::vector<std::int64_t> padding;
  std::int64_t next = 0;
  for (const CheckedSequences::One& one : checked.all) {
    for (; next < one.query_rows.begin; ++next) padding.push_back(next);
    next = one.query_rows.end;
  }
  return padding;
}

// What such rows have: zeros in out, -inf or their head's sink elsewhere.
void fill_padding(const View& rows, std::span<const std::int64_t> padding,
                  std::span<const double> values, double nothing) {
  const std::int64_t width = rows.rank() == 3 ? rows.size(2) : 1;
  const std::int64_t step = rows.rank() == 3 ? rows.stride(2) : 0;
  for (const std::int64_t r : padding) {
    for (std::int64_t h = 0; h < rows.size(1); ++h) {
      const double value = values.empty() ? nothing : values[static_cast<std::size_t>(h)];
      const std::int64_t row = r * rows.stride(0) + h * rows.stride(1);
      for (std::int64_t d = 0; d < width; ++d)
        base::store_double(rows.data(), rows.dtype(), row + d * step, value);
    }
  }
}

// Whether a result lies where something is read.
bool overlaps(const std::vector<View>& written, const std::vector<ConstView>& read) {
  return std::ranges::any_of(written, [&](const View& to) {
    const base::MemoryRange range = base::memory_of(to);
    return std::ranges::any_of(
        read, [&](const ConstView& from) { return range.overlaps(base::memory_of(from)); });
  });
}

std::vector<ConstView> inputs_of(const Sequences& sequences, const backend::Bindings& bound) {
  std::vector<ConstView> read{sequences.q, sequences.q_starts};
  if (const auto* packed = std::get_if<PackedKeys>(&sequences.keys)) {
    read.insert(read.end(), {packed->k, packed->v, packed->starts});
  } else {
    const auto& paged = std::get<PagedKeys>(sequences.keys);
    read.insert(read.end(), {paged.k, paged.v, paged.table, paged.lengths});
    for (const auto& scales : {paged.k_scales, paged.v_scales})
      if (scales) read.push_back(*scales);
  }
  for (const auto* views : {&bound.score_mod, &bound.mask, &bound.derivative})
    read.insert(read.end(), views->begin(), views->end());
  return read;
}

// The inputs of each sequence as those of a plain call.
std::vector<Inputs> inputs_of(const Sequences& sequences, const CheckedSequences& checked) {
  std::vector<Inputs> inputs;
  inputs.reserve(checked.all.size());
  const auto* packed = std::get_if<PackedKeys>(&sequences.keys);
  for (const CheckedSequences::One& one : checked.all) {
    const ConstView q = packed_rows(sequences.q, one.query_rows);
    if (packed == nullptr) {
      inputs.push_back({q, checked.k, checked.v});
    } else {
      inputs.push_back(
          {q, packed_rows(packed->k, one.key_rows), packed_rows(packed->v, one.key_rows)});
    }
  }
  return inputs;
}

void run_forward(std::string_view name, const Attention::Compiled& compiled,
                 const ForwardViews& results, const Sequences& sequences,
                 const CheckedSequences& checked, const Call& call) {
  const std::vector<double> sinks = api::sinks_of(name, call.sinks, checked.sizes);
  const auto captures = api::bind(name, compiled.captures, call.captures);
  const backend::Bindings bound = api::bindings_of(compiled.program, captures);
  std::vector<View> written{results.out};
  for (const auto& view : {results.lse, results.max})
    if (view) written.push_back(*view);
  ForwardViews to = results;
  Tensor out, lse, max;
  const bool apart = !overlaps(written, inputs_of(sequences, bound));
  if (!apart) {
    to.out = out = tensor_like(results.out);
    if (results.lse) to.lse = lse = tensor_like(*results.lse);
    if (results.max) to.max = max = tensor_like(*results.max);
  }
  const std::vector<Inputs> inputs = inputs_of(sequences, checked);
  std::vector<ForwardViews> views;
  std::vector<backend::ForwardRequest> requests;
  views.reserve(inputs.size());
  requests.reserve(inputs.size());
  const Layout none;
  const auto dropout = base::dropout_rule(name, call.dropout);
  const base::Workers workers = api::workers_of(name, call);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const CheckedSequences::One& one = checked.all[i];
    const auto rows = [&](const std::optional<View>& view) {
      return view ? std::optional(packed_rows(*view, one.query_rows)) : std::nullopt;
    };
    views.push_back({packed_rows(to.out, one.query_rows), rows(to.lse), rows(to.max)});
    requests.push_back({{name, one.sizes, inputs[i], api::scale_of(compiled, checked.sizes.dim),
                         bound, none, workers, sinks, dropout ? &*dropout : nullptr,
                         checked.paged ? &one.pages : nullptr, true},
                        views.back()});
  }
  const std::vector<std::int64_t> padding = padding_of(checked);
  compiled.backend->forward(requests);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  fill_padding(to.out, padding, {}, 0);
  if (to.lse) fill_padding(*to.lse, padding, sinks, -infinity);
  if (to.max) fill_padding(*to.max, padding, {}, -infinity);
  if (apart) return;
  base::copy(results.out, to.out);
  if (to.lse) base::copy(*results.lse, *to.lse);
  if (to.max) base::copy(*results.max, *to.max);
}

const PackedKeys& packed_of(const Sequences& sequences) {
  const auto* packed = std::get_if<PackedKeys>(&sequences.keys);
  if (packed == nullptr)
    base::fail("backward: keys lie in pages; gradients need packed keys (treadle::PackedKeys)");
  return *packed;
}

// Sequences one after the other, each on all threads.
void run_backward(const Attention::Compiled& compiled, const BackwardViews& results,
                  const Sequences& sequences, const CheckedSequences& checked, const Saved& given,
                  const ConstView& dout, const std::optional<ConstView>& dlse, const Call& call) {
  const std::vector<double> sinks = api::sinks_of("backward", call.sinks, checked.sizes);
  const auto dropout = base::dropout_rule("backward", call.dropout);
  const auto captures = api::bind("backward", compiled.captures, call.captures);
  const backend::Bindings bound = api::bindings_of(compiled.program, captures);
  const base::Workers workers = api::workers_of("backward", call);
  Saved saved = given;
  Tensor out, lse;
  if (compiled.save == Save::nothing) {
    out = Tensor(sequences.q.dtype(), rows_shape(checked, checked.sizes.value_dim));
    lse = Tensor(checked.sizes.compute, rows_shape(checked, 0));
    run_forward("backward", compiled, {out.view(), lse.view(), std::nullopt}, sequences, checked,
                call);
    saved = {out, lse};
  }
  // In memory of its own: a sequence may fail when others are done, and results may lie where it reads.
  Tensor dq = tensor_like(results.dq), dk = tensor_like(results.dk), dv = tensor_like(results.dv);
  std::vector<Tensor> captured;
  for (const CaptureView& view : results.captures)
    captured.emplace_back(DType::f64, view.gradient.shape());
  std::vector<double> dsinks;
  if (results.dsinks) {
    const Range all(checked.sizes.queries.count());
    const Saved rows{packed_rows(saved.out, all), packed_rows(saved.lse, all)};
    std::optional<ConstView> all_dlse;
    if (dlse) all_dlse = packed_rows(*dlse, all);
    dsinks = api::sink_gradients(sinks, checked.sizes, {rows, packed_rows(dout, all), all_dlse},
                                 workers);
  }
  const std::vector<Inputs> inputs = inputs_of(sequences, checked);
  const Layout none;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const CheckedSequences::One& one = checked.all[i];
    if (one.query_rows.empty() || one.key_rows.empty()) continue;
    const Saved own{packed_rows(saved.out, one.query_rows), packed_rows(saved.lse, one.query_rows)};
    const ConstView own_dout = packed_rows(dout, one.query_rows);
    std::optional<ConstView> own_dlse;
    if (dlse) own_dlse = packed_rows(*dlse, one.query_rows);
    BackwardViews views{packed_rows(dq.view(), one.query_rows),
                        packed_rows(dk.view(), one.key_rows),
                        packed_rows(dv.view(), one.key_rows),
                        {},
                        std::nullopt};
    std::vector<Tensor> part;
    for (std::size_t c = 0; c < captured.size(); ++c) {
      part.emplace_back(DType::f64, captured[c].shape());
      views.captures.push_back({results.captures[c].name, part.back().view()});
    }
    const backend::BackwardRequest request{
        {"backward", one.sizes, inputs[i], api::scale_of(compiled, checked.sizes.dim), bound, none,
         workers, sinks, dropout ? &*dropout : nullptr},
        own,
        own_dout,
        own_dlse,
        views};
    compiled.backend->backward(request);
    for (std::size_t c = 0; c < captured.size(); ++c) api::add(captured[c].view(), part[c]);
  }
  const std::vector<ConstView> done(captured.begin(), captured.end());
  const ConstView done_q = dq, done_k = dk, done_v = dv;  // need memory, copies do not
  base::copy(results.dq, done_q);
  base::copy(results.dk, done_k);
  base::copy(results.dv, done_v);
  for (std::size_t c = 0; c < done.size(); ++c) base::copy(results.captures[c].gradient, done[c]);
  if (results.dsinks) api::store_dsinks(*results.dsinks, dsinks);
}

void check_saved(const Attention::Compiled& compiled, const Sequences& sequences,
                 const CheckedSequences& checked, const Saved& saved, const ConstView& dout,
                 const std::optional<ConstView>& dlse) {
  const PackedKeys& keys = packed_of(sequences);
  api::check_differentiable("backward", keys.k.dtype(), keys.v.dtype());
  const Dims out = rows_shape(checked, checked.sizes.value_dim), rows = rows_shape(checked, 0);
  const DType type = sequences.q.dtype(), compute = checked.sizes.compute;
  if (compiled.save == Save::lse) {
    api::check_tensor("backward", "out", saved.out, {type, out});
    api::check_tensor("backward", "lse", saved.lse, {compute, rows});
  }
  api::check_tensor("backward", "dout", dout, {type, out});
  if (dlse) api::check_tensor("backward", "dlse", *dlse, {compute, rows});
}

}  // namespace

Forward Attention::forward(const Sequences& sequences, const Call& call) const {
  CheckedSequences checked;
  api::check_sequences("forward", sequences, call, checked);
  Forward result{Tensor(sequences.q.dtype(), rows_shape(checked, checked.sizes.value_dim)),
                 Tensor(), Tensor()};
  ForwardViews views{result.out.view(), std::nullopt, std::nullopt};
  const auto rows = [&](Tensor& tensor) {
    tensor = Tensor(checked.sizes.compute, rows_shape(checked, 0));
    return tensor.view();
  };
  if (call.lse) views.lse = rows(result.lse);
  if (call.max) views.max = rows(result.max);
  run_forward("forward", *compiled_, views, sequences, checked, call);
  return result;
}

void Attention::forward_into(const ForwardViews& results, const Sequences& sequences,
                             const Call& call) const {
  CheckedSequences checked;
  api::check_sequences("forward", sequences, call, checked);
  const Dims out = rows_shape(checked, checked.sizes.value_dim), rows = rows_shape(checked, 0);
  api::check_result("forward", "out", results.out, {sequences.q.dtype(), out});
  if (results.lse) api::check_result("forward", "lse", *results.lse, {checked.sizes.compute, rows});
  if (results.max) api::check_result("forward", "max", *results.max, {checked.sizes.compute, rows});
  run_forward("forward", *compiled_, results, sequences, checked, call);
}

Backward Attention::backward(const Sequences& sequences, const Saved& saved, const ConstView& dout,
                             const std::optional<ConstView>& dlse, const Call& call) const {
  const PackedKeys& keys = packed_of(sequences);
  CheckedSequences checked;
  api::check_sequences("backward", sequences, call, checked);
  check_saved(*compiled_, sequences, checked, saved, dout, dlse);
  const auto like = [](const ConstView& view) { return Tensor(view.dtype(), view.shape()); };
  Backward result{like(sequences.q), like(keys.k), like(keys.v), {}, Tensor()};
  BackwardViews views{result.dq, result.dk, result.dv, {}, std::nullopt};
  if (call.sinks) views.dsinks = result.dsinks = like(*call.sinks);
  const auto bound = api::bind("backward", compiled_->captures, call.captures);
  for (const std::string& name : compiled_->gradients) {
    const Capture& capture = **std::ranges::find(bound, name, &Capture::name);
    result.captures.push_back({name, like(capture.view())});
    views.captures.push_back({name, result.captures.back().gradient});
  }
  run_backward(*compiled_, views, sequences, checked, saved, dout, dlse, call);
  return result;
}

void Attention::backward_into(const BackwardViews& results, const Sequences& sequences,
                              const Saved& saved, const ConstView& dout,
                              const std::optional<ConstView>& dlse, const Call& call) const {
  const PackedKeys& keys = packed_of(sequences);
  CheckedSequences checked;
  api::check_sequences("backward", sequences, call, checked);
  check_saved(*compiled_, sequences, checked, saved, dout, dlse);
  api::check_result("backward", "dq", results.dq, sequences.q);
  api::check_result("backward", "dk", results.dk, keys.k);
  api::check_result("backward", "dv", results.dv, keys.v);
  api::check_captures(*compiled_, results.captures,
                      api::bind("backward", compiled_->captures, call.captures));
  if (results.dsinks) {
    if (!call.sinks) base::fail("backward: a view for dsinks was passed, but no sinks");
    api::check_result("backward", "dsinks", *results.dsinks, *call.sinks);
  }
  run_backward(*compiled_, results, sequences, checked, saved, dout, dlse, call);
}

}  // namespace treadle
