// A distributed backward call, which goes as a forward one does (forward.cpp): rows of q, dout, lse and delta travel to
// who computes them, dQ comes back, nodes of dK and dV go to the owners of the keys. Then gradients of captures and
// sinks, which all ranks get. Read run_backward() first.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "api/check.h"
#include "api/run_call.h"
#include "api/sinks.h"
#include "base/copy.h"
#include "base/error.h"
#include "distributed/backward_run.h"
#include "distributed/call_facts.h"
#include "distributed/forward_call.h"
#include "distributed/sharded_captures.h"
#include "distributed/sink_sums.h"
#include "run/nonfinite.h"

namespace treadle::distributed {
namespace {

void check_saved(const Attention::Compiled& compiled, const Plan::Held& held, const Given& given) {
  const backend::Sizes& s = held.sizes;
  const std::int64_t rows = held.own_queries().count();
  const api::Shape4 out{s.batch, s.heads, rows, s.value_dim};
  const api::Shape3 row{s.batch, s.heads, rows};
  api::check_differentiable("backward", held.k, held.v);
  if (compiled.save == Save::lse) {
    api::check_tensor("backward", "out", given.saved.out, {held.q, out});
    if (given.saved.lse.shape() == Dims{0} && rows > 0)
      base::fail("backward: saved.lse is empty; forward returns it when Call::lse is set");
    api::check_tensor("backward", "lse", given.saved.lse, {s.compute, row});
  }
  api::check_tensor("backward", "dout", given.dout, {held.q, out});
  if (given.dlse) api::check_tensor("backward", "dlse", *given.dlse, {s.compute, row});
}

// Results with contiguous rows, and what of them has to be copied to the caller's.
struct Placed {
  View view;
  Tensor own;

  explicit Placed(const View& wanted) : view(wanted) {
    const int last = wanted.rank() - 1;
    if (wanted.stride(last) == 1 || wanted.size(last) <= 1) return;
    own = Tensor(wanted.dtype(), wanted.shape());
    view = own.view();
  }
  void deliver(const View& wanted) const {
    if (own.count() > 0) base::copy(wanted, own);
  }
};

void make_backward(const Attention::Compiled& compiled, Plan::Held& held, const Given& all_given,
                   const Call& call, const std::function<BackwardViews()>& results) {
  // Without what the forward left it runs again.
  Tensor out, lse;
  Saved again;
  const bool recompute = compiled.save == Save::nothing;
  if (recompute) {
    run_forward(compiled, held, all_given.mine, call, {.lse = true}, [&] {
      const backend::Sizes& s = held.sizes;
      const std::int64_t rows = held.own_queries().count();
      out = Tensor(held.q, {s.batch, s.heads, rows, s.value_dim});
      lse = Tensor(s.compute, {s.batch, s.heads, rows});
      return ForwardViews{out.view(), lse.view(), std::nullopt};
    });
    again = {out, lse};
  }
  const Given given{all_given.mine, recompute ? again : all_given.saved, all_given.dout,
                    all_given.dlse};

  const GatheredCaptures gathered(held, Envelope::Kind::backward, compiled, call);
  // What a mail that ends early still refers to goes after it.
  Envelope own;
  std::vector<Envelope> all(static_cast<std::size_t>(held.ranks()));
  std::optional<CallFacts> facts;
  std::unique_ptr<BackwardRun> run;
  BackwardViews views;
  std::vector<Placed> placed;
  Failure failure;
  try {
    facts.emplace("backward", compiled, held, gathered.call());
    facts->what.add(given.dlse.has_value());
    check_shard("backward", held, given.mine);
    check_saved(compiled, held, given);
    views = results();
    facts->what.add(views.dsinks.has_value());
    for (const View* view : {&views.dq, &views.dk, &views.dv}) placed.emplace_back(*view);
    run = std::make_unique<BackwardRun>(held, *facts, given);
  } catch (...) {
    failure = Failure::current();
  }
  own = begin_call(held, Envelope::Kind::backward, facts ? &*facts : nullptr, failure);
  std::optional<Mail> none;
  Mail& in = run != nullptr ? run->in() : none.emplace(held.channel, "backward");
  in.start_after(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)),
                 [&] { check_begin(held, all); });
  if (run == nullptr) hear_refusal(held.channel, in, all, failure);
  std::vector<std::byte> sink_nodes;
  for (const auto nonfinite : {run::Nonfinite::fast, run::Nonfinite::exact}) {
    bool unclear = false;
    try {
      unclear = run->compute(nonfinite);
      if (views.dsinks && sink_nodes.empty()) sink_nodes = own_sink_nodes(held, *facts, given);
    } catch (...) {
      if (held.channel.lost()) throw;
      if (!in.refused()) failure = Failure::current();
    }
    hear_refusal(held.channel, in, all, failure);
    run->send();
    all = end_call(held, own, failure, unclear);
    run->finish();
    if (first_failing(all) >= 0) throw_failure(held.channel, all, failure);
    if (std::ranges::none_of(all, [](const Envelope& e) { return e.unclear != 0; })) break;
    run->start_again();
  }
  // Whoever has no memory for these leaves the call, and others with it.
  std::vector<Tensor> captured;
  std::vector<double> dsinks;
  if (!views.captures.empty()) captured = run->captured();
  if (views.dsinks) dsinks = dsinks_of(held, *facts, sink_nodes);
  insist([&] { run->deliver(placed[0].view, placed[1].view, placed[2].view); });
  run->keep_memory();
  placed[0].deliver(views.dq);
  placed[1].deliver(views.dk);
  placed[2].deliver(views.dv);
  for (std::size_t c = 0; c < captured.size(); ++c) {
    const std::string& name = compiled.gradients[c];
    const View& to = std::ranges::find(views.captures, name, &CaptureView::name)->gradient;
    const Dims& shape = (*std::ranges::find(facts->captures, name, &Capture::name))->view().shape();
    base::copy(to, own_slice(held, name, {captured[c].view().data(), captured[c].dtype(), shape}));
  }
  if (views.dsinks) api::store_dsinks(*views.dsinks, dsinks);
}

void run_backward(const Attention::Compiled& compiled, Plan::Held& held, const Given& given,
                  const Call& call, const std::function<BackwardViews()>& results) {
  held.channel.keep_together("backward",
                             [&] { make_backward(compiled, held, given, call, results); });
}

}  // namespace

Backward backward(const Attention& attention, const Plan& plan, const Inputs& mine,
                  const Saved& saved, const ConstView& dout, const std::optional<ConstView>& dlse,
                  const Call& call) {
  const Attention::Compiled& compiled = attention.compiled();
  Backward result;
  const auto made = [&] {
    const auto like = [](const ConstView& view) { return Tensor(view.dtype(), view.shape()); };
    result = {like(mine.q), like(mine.k), like(mine.v), {}, Tensor()};
    BackwardViews views{result.dq, result.dk, result.dv, {}, std::nullopt};
    if (call.sinks) {
      result.dsinks = like(*call.sinks);
      views.dsinks = result.dsinks;
    }
    const auto own = api::bind("backward", compiled.captures, call.captures);
    for (const std::string& name : compiled.gradients) {
      const Capture& capture = **std::ranges::find(own, name, &Capture::name);
      result.captures.push_back({name, like(capture.view())});
      views.captures.push_back({name, result.captures.back().gradient});
    }
    return views;
  };
  plan.held().channel.keep_together("backward", [&] {
    run_backward(compiled, plan.held(), {mine, saved, dout, dlse}, call, made);
  });
  return result;
}

void backward_into(const Attention& attention, const Plan& plan, const BackwardViews& results,
                   const Inputs& mine, const Saved& saved, const ConstView& dout,
                   const std::optional<ConstView>& dlse, const Call& call) {
  const Attention::Compiled& compiled = attention.compiled();
  const auto made = [&] {
    api::check_result("backward", "dq", results.dq, mine.q);
    api::check_result("backward", "dk", results.dk, mine.k);
    api::check_result("backward", "dv", results.dv, mine.v);
    api::check_captures(compiled, results.captures,
                        api::bind("backward", compiled.captures, call.captures));
    if (results.dsinks) {
      if (!call.sinks) base::fail("backward: a view for dsinks is given, but no sinks");
      api::check_result("backward", "dsinks", *results.dsinks, *call.sinks);
    }
    return results;
  };
  plan.held().channel.keep_together("backward", [&] {
    run_backward(compiled, plan.held(), {mine, saved, dout, dlse}, call, made);
  });
}

}  // namespace treadle::distributed
