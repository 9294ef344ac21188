// A distributed forward call:
//
//   begin     all ranks say what they call; meanwhile parts whose rows and keys are here are computed
//   in        rows of keys to who looks at them, rows of queries to who computes them
//   compute   own parts batch by batch, and between them those with rows of others, as they come; tasks wait for the
//             keys they look at
//   meet      states of parts of cut leaves at the parts that join them
//   out       results, or states of one of several terms, to the owner of the rows as soon as all of its are done
//   end       all ranks say what has become of it; then rows are joined and written
//
// Until the end nothing is written, and after it nothing can fail. Read run_forward() first.
#include <functional>
#include <memory>
#include <optional>

#include "api/check.h"
#include "api/run_call.h"
#include "base/copy.h"
#include "base/error.h"
#include "distributed/call_facts.h"
#include "distributed/forward_call.h"
#include "distributed/forward_run.h"
#include "distributed/sharded_captures.h"

namespace treadle::distributed {

void check_shard(std::string_view call, const Plan::Held& held, const Inputs& mine) {
  const backend::Sizes& s = held.sizes;
  const std::int64_t q = held.own_queries().count(), k = held.own_keys().count();
  api::check_tensor(call, "q", mine.q, {held.q, api::Shape4{s.batch, s.heads, q, s.dim}});
  api::check_tensor(call, "k", mine.k, {held.k, api::Shape4{s.key_batch, s.key_heads, k, s.dim}});
  api::check_tensor(call, "v", mine.v,
                    {held.v, api::Shape4{s.key_batch, s.key_heads, k, s.value_dim}});
}

namespace {

// Some rank could not begin; which one is in the envelopes.
class NotBegun : public std::exception {};

}  // namespace

void check_begin(Plan::Held& held, std::span<const Envelope> all) {
  try {
    if (first_refusing(all) >= 0) throw NotBegun();
    check_same_call(held.channel, all);
    // A rank that failed may not know the rest.
    if (first_failing(all) >= 0) throw NotBegun();
    check_same_contents(held.channel, all);
  } catch (...) {
    // Some ranks may have been in another call, or in none.
    --held.number;
    throw;
  }
}

void hear_refusal(Channel& channel, Mail& in, std::span<const Envelope> all, const Failure& own) {
  try {
    in.finish();
  } catch (const NotBegun&) {
    throw_failure(channel, all, own);
  }
}

namespace {

void make_forward(const Attention::Compiled& compiled, Plan::Held& held, const Inputs& mine,
                  const Call& call, const WantedRows& wanted,
                  const std::function<ForwardViews()>& results) {
  // What a mail that ends early still refers to goes after it.
  Envelope own;
  std::vector<Envelope> all(static_cast<std::size_t>(held.ranks()));
  std::optional<CallFacts> facts;
  std::unique_ptr<ForwardRun> run;
  ForwardViews views;
  Failure failure;
  const GatheredCaptures gathered(held, Envelope::Kind::forward, compiled, call);
  try {
    facts.emplace("forward", compiled, held, gathered.call());
    facts->what.add(wanted.lse).add(wanted.max);
    check_shard("forward", held, mine);
    views = results();
    run = std::make_unique<ForwardRun>(held, *facts, mine, wanted.lse, wanted.max);
  } catch (...) {
    failure = Failure::current();
  }
  own = begin_call(held, Envelope::Kind::forward, facts ? &*facts : nullptr, failure);
  std::optional<Mail> none;
  Mail& in = run != nullptr ? run->in() : none.emplace(held.channel, "forward");
  in.start_after(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)),
                 [&] { check_begin(held, all); });
  if (run == nullptr) {
    hear_refusal(held.channel, in, all, failure);
  }
  try {
    run->compute();
  } catch (...) {
    if (held.channel.lost()) throw;
    if (!in.refused()) failure = Failure::current();
  }
  hear_refusal(held.channel, in, all, failure);
  run->send();
  all = end_call(held, own, failure, false);
  run->finish();
  if (first_failing(all) >= 0) throw_failure(held.channel, all, failure);
  insist([&] { run->deliver(views); });
  run->keep_memory();
}

}  // namespace

void run_forward(const Attention::Compiled& compiled, Plan::Held& held, const Inputs& mine,
                 const Call& call, const WantedRows& wanted,
                 const std::function<ForwardViews()>& results) {
  held.channel.keep_together("forward",
                             [&] { make_forward(compiled, held, mine, call, wanted, results); });
}

Forward forward(const Attention& attention, const Plan& plan, const Inputs& mine,
                const Call& call) {
  Plan::Held& held = plan.held();
  Forward result;
  const auto results = [&] {
    const backend::Sizes& s = held.sizes;
    const std::int64_t rows = held.own_queries().count();
    result.out = Tensor(held.q, {s.batch, s.heads, rows, s.value_dim});
    ForwardViews views{result.out.view(), std::nullopt, std::nullopt};
    if (call.lse) {
      result.lse = Tensor(s.compute, {s.batch, s.heads, rows});
      views.lse = result.lse.view();
    }
    if (call.max) {
      result.max = Tensor(s.compute, {s.batch, s.heads, rows});
      views.max = result.max.view();
    }
    return views;
  };
  // A function object may need memory, too.
  held.channel.keep_together("forward", [&] {
    run_forward(attention.compiled(), held, mine, call, {call.lse, call.max}, results);
  });
  return result;
}

void forward_into(const Attention& attention, const Plan& plan, const ForwardViews& results,
                  const Inputs& mine, const Call& call) {
  Plan::Held& held = plan.held();
  Tensor out;
  const auto checked = [&] {
    const backend::Sizes& s = held.sizes;
    const std::int64_t rows = held.own_queries().count();
    api::check_result("forward", "out", results.out,
                      {held.q, api::Shape4{s.batch, s.heads, rows, s.value_dim}});
    const api::Shape3 shape{s.batch, s.heads, rows};
    if (results.lse) api::check_result("forward", "lse", *results.lse, {s.compute, shape});
    if (results.max) api::check_result("forward", "max", *results.max, {s.compute, shape});
    if (results.out.stride(3) == 1 || results.out.size(3) <= 1) return results;
    out = Tensor(held.q, results.out.shape());
    return ForwardViews{out.view(), results.lse, results.max};
  };
  held.channel.keep_together("forward", [&] {
    run_forward(attention.compiled(), held, mine, call,
                {results.lse.has_value(), results.max.has_value()}, checked);
  });
  if (out.count() > 0) base::copy(results.out, out);
}

}  // namespace treadle::distributed
