// A distributed forward call:
//
//   begin     all ranks say what they call; meanwhile parts whose rows and keys are here are computed
//   in        rows of keys to who looks at them, rows of queries to who computes them
//   compute   own parts first, then those with rows of others; tasks wait for the keys they look at
//   out       results, or states of cut parts, to the owners of the rows
//   end       all ranks say what has become of it; then rows are joined and written
//
// Until the end nothing is written, and after it nothing can fail. Read run_forward() first.
#include <algorithm>
#include <memory>
#include <utility>

#include "api/check.h"
#include "api/run_call.h"
#include "base/copy.h"
#include "base/error.h"
#include "distributed/call_facts.h"
#include "distributed/forward_call.h"
#include "distributed/row_join.h"
#include "distributed/row_mail.h"
#include "distributed/shard_keys.h"
#include "run/row_states.h"

namespace treadle::distributed {
namespace {

using layout::Range;

// Where a part's rows are, and what it finds.
struct ForwardRoom {
  Tensor q, out, lse, max;
  struct State {
    Tensor maximum, weight, sums;
    run::StateViews views;
  };
  std::vector<State> states;  // slice by slice
};

class ForwardRun {
 public:
  ForwardRun(Plan::Held& held, const CallFacts& facts, const Inputs& mine, bool lse, bool max)
      : held_(held),
        facts_(facts),
        lse_(lse),
        max_(max),
        q_(mine.q),
        k_(mine.k),
        v_(mine.v),
        own_keys_{k_.view(), v_.view(), held.own_keys()},
        in_(held.channel, "forward"),
        out_(held.channel, "forward") {
    make_rooms();
    make_mail();
    keys_ = std::make_unique<ShardKeys>(own_keys_, held_.keys, held_.rank(), held_.from, in_);
  }

  Mail& in() { return in_; }

  void compute() {
    run([](const Part& part) { return part.own; });
    const auto foreign = [](const Part& part) { return !part.own; };
    if (std::ranges::none_of(held_.parts, foreign)) return;
    take_in();
    run(foreign);
  }

  // Announced messages leave, whatever has become of the work.
  void send() {
    for (Mail::Message& message : out_.sends) {
      std::byte* to = message.bytes.data();
      for (std::size_t p = 0; p < held_.parts.size(); ++p) {
        const auto& runs = held_.parts[p].from[static_cast<std::size_t>(message.rank)];
        const ForwardRoom& room = rooms_[p];
        if (held_.parts[p].final) {
          take_packed(room.out, runs, to);
          if (lse_) take_packed(room.lse, runs, to);
          if (max_) take_packed(room.max, runs, to);
        }
        for (const ForwardRoom::State& state : room.states)
          for (const Tensor* tensor : {&state.maximum, &state.weight, &state.sums})
            take_packed(*tensor, runs, to);
      }
    }
    out_.start();
  }
  void finish() {
    in_.finish();
    out_.finish();
    count(held_.forward_moved, in_);
    count(held_.forward_moved, out_);
  }

  // Allocates little, after all ranks have agreed that all is well.
  void deliver(const ForwardViews& results) {
    std::vector<FoundRows> found;
    std::vector<std::vector<RowRun>> runs;
    runs.reserve(held_.away.size());
    const Range own = held_.own_queries();
    for (std::size_t p = 0; p < held_.parts.size(); ++p) {
      const Part& part = held_.parts[p];
      const auto& rows = part.from[static_cast<std::size_t>(held_.rank())];
      if (rows.empty()) continue;
      const Range heads = part.heads(held_.per_key_head());
      ForwardRoom& room = rooms_[p];
      if (part.final) {
        unpack_rows(results.out, own.begin, part.piece.batch, heads, rows, room.out);
        if (lse_) unpack_rows(*results.lse, own.begin, part.piece.batch, heads, rows, room.lse);
        if (max_) unpack_rows(*results.max, own.begin, part.piece.batch, heads, rows, room.max);
        continue;
      }
      for (std::size_t s = 0; s < room.states.size(); ++s) {
        const run::StateViews& views = room.states[s].views;
        found.push_back({part.piece.pass, part.slices[s].chunks.begin, part.piece.batch, heads,
                         rows, part.rows(), views.maximum, views.weight, views.sums});
      }
    }
    for (const Mail::Message& message : out_.receives) {
      const std::byte* at = message.bytes.data();
      for (const Away& away : held_.away) {
        if (away.rank != message.rank) continue;
        const PartShape& shape = away.shape;
        const Range heads = shape.heads(held_.per_key_head());
        if (shape.final) {
          put_rows(results.out, own.begin, shape.piece.batch, heads, away.rows, at);
          if (lse_) put_rows(*results.lse, own.begin, shape.piece.batch, heads, away.rows, at);
          if (max_) put_rows(*results.max, own.begin, shape.piece.batch, heads, away.rows, at);
          continue;
        }
        runs.push_back(one_after_another(away.rows));
        const std::int64_t rows = rows_moved(shape, away.rows, held_.per_key_head());
        const auto size = static_cast<std::int64_t>(size_of(held_.sizes.compute));
        for (std::int64_t s = 0; s < shape.slice_count(); ++s) {
          const std::byte *maximum = at, *weight = at + rows * size, *sums = weight + rows * size;
          at = sums + rows * size * held_.sizes.value_dim;
          found.push_back({shape.piece.pass, shape.piece.chunks.begin + s, shape.piece.batch, heads,
                           runs.back(), rows_of(away.rows), maximum, weight, sums});
        }
      }
    }
    join_states({found, own, held_.passes.size()}, held_.sizes, facts_.sinks,
                facts_.dropout ? facts_.dropout->scale : 1.0, results, facts_.workers);
  }

 private:
  void make_rooms() {
    const DType compute = held_.sizes.compute;
    for (const Part& part : held_.parts) {
      const std::int64_t b = part.piece.batch.count(), h = part.heads(held_.per_key_head()).count(),
                         rows = part.rows();
      ForwardRoom& room = rooms_.emplace_back();
      room.q = Tensor(held_.q, {b, h, rows, held_.sizes.dim});
      room.out = Tensor(held_.q, {b, h, part.final ? rows : 0, held_.sizes.value_dim});
      if (part.final && lse_) room.lse = Tensor(compute, {b, h, rows});
      if (part.final && max_) room.max = Tensor(compute, {b, h, rows});
      for (std::int64_t s = 0; !part.final && s < part.slice_count(); ++s) {
        ForwardRoom::State& state = room.states.emplace_back();
        state.maximum = Tensor(compute, {b, h, rows});
        state.weight = Tensor(compute, {b, h, rows});
        state.sums = Tensor(compute, {b, h, rows, held_.sizes.value_dim});
        state.views = {state.maximum.view().data(), state.weight.view().data(),
                       state.sums.view().data()};
      }
    }
  }

  void make_mail() {
    const RowTraffic rows = forward_rows(held_, lse_, max_);
    const Range own = held_.own_queries();
    for (int r = 0; r < held_.ranks(); ++r) {
      const auto at = static_cast<std::size_t>(r);
      const bool self = r == held_.rank();
      const std::int64_t of_keys = self ? 0 : bytes_of(held_.to[at], own_keys_);
      Buffer sent(self ? 0 : of_keys + bytes_to_parts(held_, r, rows.there));
      if (!self) {
        pack(held_.to[at], own_keys_, sent.data());
        std::byte* to = sent.data() + of_keys;
        for (const Away& away : held_.away)
          if (away.rank == r)
            take_rows(q_.view(), own.begin, away.shape.piece.batch,
                      away.shape.heads(held_.per_key_head()), away.rows, to);
      }
      in_.sends.push_back({r, std::move(sent)});
      in_.receives.push_back({r, Buffer(self ? 0
                                             : bytes_of(held_.from[at], own_keys_) +
                                                   bytes_from_homes(held_, r, rows.there))});
      out_.sends.push_back({r, Buffer(self ? 0 : bytes_to_homes(held_, r, rows))});
      out_.receives.push_back({r, Buffer(self ? 0 : bytes_from_parts(held_, r, rows))});
    }
    std::erase_if(out_.sends, [](const Mail::Message& m) { return m.bytes.size() == 0; });
    std::erase_if(out_.receives, [](const Mail::Message& m) { return m.bytes.size() == 0; });
    for (std::size_t p = 0; p < held_.parts.size(); ++p) {
      const Part& part = held_.parts[p];
      pack_rows(rooms_[p].q.view(), q_.view(), own.begin, part.piece.batch,
                part.heads(held_.per_key_head()),
                part.from[static_cast<std::size_t>(held_.rank())]);
    }
  }

  // Rows of other ranks into the parts that they belong to.
  void take_in() {
    for (Mail::Message& message : in_.receives) {
      const auto rank = static_cast<std::size_t>(message.rank);
      if (message.bytes.size() == 0) continue;
      const std::byte* from = message.bytes.data() + bytes_of(held_.from[rank], own_keys_);
      if (from == message.bytes.data() + message.bytes.size()) continue;
      in_.await(rank);
      for (std::size_t p = 0; p < held_.parts.size(); ++p)
        put_packed(rooms_[p].q.view(), held_.parts[p].from[rank], from);
    }
  }

  template <class Wanted>
  void run(const Wanted& wanted) {
    std::vector<std::unique_ptr<PartRun>> all;
    for (std::size_t p = 0; p < held_.parts.size(); ++p)
      if (wanted(held_.parts[p]))
        for (std::size_t s = 0; s < held_.parts[p].slices.size(); ++s)
          all.push_back(std::make_unique<PartRun>(*this, p, s));
    std::vector<backend::ForwardRequest> requests;
    for (const auto& one : all) requests.push_back(one->request(*this));
    if (!requests.empty()) facts_.compiled.backend->forward(requests);
  }

  // A slice as a call of its own; requests refer to it.
  struct PartRun {
    const Part& part;
    std::size_t slice;
    ForwardRoom& room;
    backend::Sizes sizes;
    PartKeys keys;
    ConstView no_keys, no_values;
    Inputs inputs;
    ForwardViews results;

    PartRun(ForwardRun& run, std::size_t p, std::size_t s)
        : part(run.held_.parts[p]),
          slice(s),
          room(run.rooms_[p]),
          sizes(part.sizes(run.held_.sizes)),
          keys(*run.keys_, run.held_.sizes.key_batch == 1 ? Range(1) : part.piece.batch,
               part.piece.key_heads),
          inputs{room.q, run.none_k_, run.none_v_},
          results{room.out.view(), std::nullopt, std::nullopt} {
      if (part.final && run.lse_) results.lse = room.lse.view();
      if (part.final && run.max_) results.max = room.max.view();
    }
    backend::ForwardRequest request(const ForwardRun& run) {
      return {run.facts_.request(sizes, inputs, part.slices[slice].layout, keys), results,
              part.final ? nullptr : &room.states[slice].views};
    }
  };

  Plan::Held& held_;
  const CallFacts& facts_;
  bool lse_, max_;
  ContiguousRows q_, k_, v_;
  OwnKeys own_keys_;
  Tensor none_k_{held_.k, {1, 1, 0, held_.sizes.dim}},
      none_v_{held_.v, {1, 1, 0, held_.sizes.value_dim}};
  std::vector<ForwardRoom> rooms_;
  Mail in_, out_;
  std::unique_ptr<ShardKeys> keys_;
};

}  // namespace

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
    // A rank that failed may not know the rest.
    if (first_failing(all) >= 0) throw NotBegun();
    check_same_call(all);
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

void run_forward(const Attention::Compiled& compiled, Plan::Held& held, const Inputs& mine,
                 const Call& call, const WantedRows& wanted,
                 const std::function<ForwardViews()>& results) {
  std::optional<CallFacts> facts;
  std::unique_ptr<ForwardRun> run;
  ForwardViews views;
  Failure failure;
  held.channel.check("forward");
  try {
    facts.emplace("forward", compiled, held, call);
    facts->what.add(wanted.lse).add(wanted.max);
    check_shard("forward", held, mine);
    views = results();
    run = std::make_unique<ForwardRun>(held, *facts, mine, wanted.lse, wanted.max);
  } catch (...) {
    failure = Failure::current();
  }
  const Envelope own =
      begin_call(held, Envelope::Kind::forward, facts ? &*facts : nullptr, failure);
  std::vector<Envelope> all(static_cast<std::size_t>(held.ranks()));
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
  run->deliver(views);
}

Forward forward(const Attention& attention, const Plan& plan, const Inputs& mine,
                const Call& call) {
  Plan::Held& held = plan.held();
  Forward result;
  run_forward(attention.compiled(), held, mine, call, {call.lse, call.max}, [&] {
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
  });
  return result;
}

void forward_into(const Attention& attention, const Plan& plan, const ForwardViews& results,
                  const Inputs& mine, const Call& call) {
  Plan::Held& held = plan.held();
  Tensor out;
  run_forward(attention.compiled(), held, mine, call,
              {results.lse.has_value(), results.max.has_value()}, [&] {
                const backend::Sizes& s = held.sizes;
                const std::int64_t rows = held.own_queries().count();
                api::check_result("forward", "out", results.out,
                                  {held.q, api::Shape4{s.batch, s.heads, rows, s.value_dim}});
                const api::Shape3 shape{s.batch, s.heads, rows};
                if (results.lse)
                  api::check_result("forward", "lse", *results.lse, {s.compute, shape});
                if (results.max)
                  api::check_result("forward", "max", *results.max, {s.compute, shape});
                if (results.out.stride(3) == 1 || results.out.size(3) <= 1) return results;
                out = Tensor(held.q, results.out.shape());
                return ForwardViews{out.view(), results.lse, results.max};
              });
  if (out.count() > 0) base::copy(results.out, out);
}

}  // namespace treadle::distributed
