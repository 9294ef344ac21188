// Calls checked and bound.
#include "distributed/call_facts.h"

#include "api/call.h"
#include "api/check.h"
#include "api/positions.h"
#include "api/sinks.h"
#include "base/copy.h"
#include "base/error.h"

namespace treadle::distributed {

CallFacts::CallFacts(std::string_view of, const Attention::Compiled& with, const Plan::Held& held,
                     const Call& call)
    : name(of),
      compiled(with),
      captures(api::bind(of, with.captures, call.captures)),
      bound(api::bindings_of(with.program, captures)),
      sinks(api::sinks_of(of, call.sinks, held.sizes)),
      dropout(base::dropout_rule(of, call.dropout)),
      workers(api::workers_of(of, call)),
      scale(api::scale_of(with, held.sizes.dim)) {
  if (with.mask != held.mask)
    base::fail(
        "{}: the plan is of another mask than the attention's; a plan serves all attentions with "
        "its mask",
        of);
  const std::string machine = machine_of(*with.backend);
  if (machine != held.machine)
    base::fail("{}: the plan is for {}, the attention for {}; they must be for the same", of,
               held.machine, machine);
  if (!call.layout.empty())
    base::fail("{}: a layout is given; a distributed call has that of its plan", of);
  api::refuse_offsets(of, call, "shards");
  what.add(with.program.score_mod.hash()).add(with.mask).add(scale);
  what.add(call.lse).add(call.max).add(call.sinks.has_value()).add(with.save == Save::nothing);
  what.add(call.dropout.probability).add(call.dropout.seed).add(call.dropout.offset);
  for (const std::string& gradient : with.gradients) what.add(gradient);
  for (const Capture* capture : captures) {
    what.add(capture->name()).add(capture->view().dtype());
    for (const std::int64_t size : capture->view().shape()) what.add(size);
  }
}

backend::Request CallFacts::request(const backend::Sizes& sizes, const Inputs& inputs,
                                    const Layout& layout, const run::KeySource& keys) const {
  const auto first = static_cast<std::size_t>(sizes.first_h),
             heads = static_cast<std::size_t>(sizes.heads);
  return {
      .name = name,
      .sizes = sizes,
      .inputs = inputs,
      .scale = scale,
      .bound = bound,
      .layout = layout,
      .workers = workers,
      .sinks = sinks.empty() ? std::span<const double>() : std::span(sinks).subspan(first, heads),
      .dropout = dropout ? &*dropout : nullptr,
      .keys = &keys};
}

Envelope begin_call(Plan::Held& held, Envelope::Kind kind, const CallFacts* facts,
                    const Failure& failure) {
  Envelope own;
  own.plan = held.id;
  own.number = ++held.number;
  own.kind = kind;
  own.outcome = failure.outcome();
  // A rank that failed may not have come so far: whoever failed says so first.
  if (facts != nullptr) own.what = facts->what.finish().low;
  return own;
}

std::vector<Envelope> end_call(Plan::Held& held, const Envelope& begun, const Failure& failure,
                               bool unclear) {
  Envelope own = begun;
  own.step = Envelope::Step::end;
  own.outcome = failure.outcome();
  own.unclear = unclear ? 1 : 0;
  std::vector<Envelope> all = held.channel.gather(own, name_of(own.kind));
  check_same_call(held.channel, all);
  return all;
}

ContiguousRows::ContiguousRows(const ConstView& given) : view_(given) {
  const int last = given.rank() - 1;
  if (given.stride(last) == 1 || given.size(last) <= 1) return;
  copy_ = base::convert(given, given.dtype());
  view_ = copy_;
}

}  // namespace treadle::distributed
