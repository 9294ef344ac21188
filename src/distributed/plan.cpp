// Plans made, by all ranks together. Read find_plan() first.
#include <algorithm>
#include <cmath>
#include <random>

#include "api/call.h"
#include "api/check.h"
#include "api/compiled.h"
#include "api/positions.h"
#include "backend/held_layout.h"
#include "base/copy.h"
#include "base/error.h"
#include "distributed/agreement.h"
#include "distributed/held_plan.h"
#include "distributed/row_mail.h"
#include "distributed/sharded_captures.h"
#include "layout/order.h"
#include "plan/backward_schedule.h"
#include "plan/chunks.h"
#include "treadle/version.h"

namespace treadle::distributed {
namespace {

using layout::Range;

// What a rank does alone; what it throws is told to all, which throw it, too.
template <class F>
void together(Channel& channel, const F& f) {
  Failure failure;
  try {
    f();
  } catch (...) {
    if (channel.lost()) throw;
    failure = Failure::current();
  }
  Envelope own;
  own.step = Envelope::Step::end;
  own.outcome = failure.outcome();
  const std::vector<Envelope> all = channel.gather(own, "plan");
  check_same_call(channel, all);
  if (first_failing(all) >= 0) throw_failure(channel, all, failure);
}

std::string text_of(const Shards& shards) {
  return fmt::format("that start at {}", fmt::join(shards.starts, ", "));
}

void check_shards(std::string_view what, const Shards& shards, int ranks, std::int64_t length) {
  const auto& starts = shards.starts;
  if (std::ssize(starts) != ranks + 1)
    base::fail("plan: {} are on {} ranks, the exchange has {}; there must be a shard for each",
               what, starts.empty() ? 0 : std::ssize(starts) - 1, ranks);
  if (starts.front() != 0)
    base::fail("plan: {} begin at {}; the first shard must begin at 0", what, starts.front());
  for (int r = 0; r < ranks; ++r) {
    if (shards.count(r) < 0)
      base::fail(
          "plan: {} of rank {} are those from {} to {}; starts of shards must ascend, so that none "
          "overlap",
          what, r, shards.begin(r), shards.end(r));
  }
  if (shards.length() != length)
    base::fail("plan: {} of all ranks end at {}, but there are {}; shards must have all of them",
               what, shards.length(), length);
}

std::string text_of(const TensorSpec& spec) {
  return fmt::format("{} {}", name_of(spec.dtype), to_string(spec.shape));
}

// What the memory of the mask's captures holds.
std::string text_of_captures(const ir::Graph& mask, std::span<const ConstView> memory) {
  std::string text;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const ConstView& view = memory[i];
    const Tensor same = base::convert(view, view.dtype());
    const auto bytes = static_cast<std::size_t>(same.count()) * size_of(view.dtype());
    const auto* data = static_cast<const std::byte*>(same.view().data());
    text += fmt::format("{}{} {} {} with contents {}", i == 0 ? "" : ", ", mask.slots()[i].name,
                        name_of(view.dtype()), to_string(view.shape()),
                        to_string(base::hash_of({data, bytes})));
  }
  return text.empty() ? "none" : text;
}

std::string text_of(const PlanOptions& o) {
  std::string sharded;
  for (const ShardedCapture& one : o.sharded)
    sharded +=
        fmt::format(", {} sharded like {} along axis {}", one.name,
                    one.like == ShardedCapture::Like::queries ? "queries" : "keys", one.axis);
  return fmt::format("{} Gbit/s, {} TFLOP/s, excess {}, {} head groups, sums {}, patience {} ms{}",
                     o.gigabits, o.teraflops, o.excess, o.head_groups,
                     o.sums == Sums::same_bits ? "same_bits" : "per_rank", o.patience.count(),
                     sharded);
}

void check_options(const PlanOptions& o) {
  if (!(o.gigabits > 0))
    base::fail("plan: the network has {} Gbit/s; it must have more than 0", o.gigabits);
  if (!(o.teraflops >= 0))
    base::fail("plan: {} TFLOP/s; there must be 0 (the default) or more", o.teraflops);
  if (!(o.excess >= 0)) base::fail("plan: an excess of {}; it must be 0 or more", o.excess);
  if (!std::isfinite(o.gigabits))
    base::fail("plan: the network has {} Gbit/s; it must be finite", o.gigabits);
  if (!std::isfinite(o.teraflops))
    base::fail("plan: {} TFLOP/s; there must be finitely many", o.teraflops);
  if (!std::isfinite(o.excess)) base::fail("plan: an excess of {}; it must be finite", o.excess);
  if (o.head_groups < 0)
    base::fail("plan: {} head groups; there must be 0 (the best) or more", o.head_groups);
  if (o.patience.count() <= 0)
    base::fail("plan: a patience of {} ms; it must be more than 0", o.patience.count());
}

std::vector<PassPlan> passes_of(const backend::QueryPasses& passes) {
  std::vector<PassPlan> all;
  for (std::size_t i = 0; i < passes.count(); ++i)
    all.push_back({passes.tiles(i), passes.tiles_per_leaf(i), 1});
  return all;
}

std::string text_of(const std::vector<PassPlan>& passes) {
  std::string text;
  for (const PassPlan& pass : passes)
    text +=
        fmt::format("{}tiles of {} in {} order, {} to a leaf", text.empty() ? "" : ", then ",
                    pass.tiles.height(), layout::to_text(pass.tiles.order()), pass.tiles_per_leaf);
  return text;
}

// What all leaves have to do: every rank looks at an equal share of them, and tells the others.
void measure(Plan::Held& held, const backend::QueryPasses& passes, const base::Workers& workers,
             std::vector<PassWork>& work) {
  for (std::size_t i = 0; i < held.passes.size(); ++i) {
    PassPlan& pass = held.passes[i];
    const Shards shares = Shards::even(pass.leaves(), held.ranks());
    std::vector<std::byte> own;
    together(held.channel, [&] {
      const Range leaves{shares.begin(held.rank()), shares.end(held.rank())};
      if (!leaves.empty()) own = work_of(passes, i, held.sizes, leaves, workers).to_bytes();
    });
    const auto shared = held.channel.share(own, "plan");
    together(held.channel, [&] {
      PassWork& all = work.emplace_back();
      bool first = true;
      for (const std::vector<std::byte>& bytes : shared) {
        if (bytes.empty()) continue;
        PassWork some = PassWork::from_bytes(bytes);
        if (first) {
          all = std::move(some);
        } else {
          all.append(some);
        }
        first = false;
      }
      pass.chunks_per_task = plan::chunks_per_task(all.chunk_work, held.sizes.keys);
    });
  }
}

// This rank's parts, and those of others that have rows of it.
void find_parts(Plan::Held& held, const std::vector<Piece>& pieces,
                const backend::QueryPasses& passes, const base::Workers& workers) {
  const Range chunks = plan::chunks_of(held.sizes.keys);
  for (const Piece& piece : pieces) {
    PartShape shape = shape_of(piece, held.passes, chunks);
    if (piece.rank == held.rank()) {
      held.parts.push_back(make_part(shape, passes,
                                     held.passes[static_cast<std::size_t>(piece.pass)], held.sizes,
                                     held.queries, held.rank(), held.options.sums, workers));
      continue;
    }
    std::vector<RowRun> rows = runs_in(shape.tiles, held.own_queries());
    if (!rows.empty()) held.away.push_back({piece.rank, std::move(shape), std::move(rows)});
  }
  std::ranges::stable_sort(held.away, {}, &Away::rank);
  held.rows_from.assign(static_cast<std::size_t>(held.ranks()),
                        QueryNeeds(held.passes, held.sizes));
  held.rows_to = held.rows_from;
  for (const Part& part : held.parts)
    for (std::size_t r = 0; r < part.from.size(); ++r)
      if (r != static_cast<std::size_t>(held.rank())) held.rows_from[r].add(part, part.from[r]);
  for (const Away& away : held.away)
    held.rows_to[static_cast<std::size_t>(away.rank)].add(away.shape, away.rows);
  held.meetings = find_meetings(pieces, held.passes, chunks, held.per_key_head(), held.rank());
  const bool waits = std::ranges::any_of(held.parts, [](const Part& part) { return !part.own; });
  for (Part& part : held.parts)
    if (waits && !part.states && !part.joins)
      add_batches(part, held.rank(), passes, held.passes[static_cast<std::size_t>(part.piece.pass)],
                  held.sizes, held.queries, workers);
  for (const Piece& piece : pieces) {
    // Who joins adds to no gradient of a capture.
    if (piece.chunks.empty() && !chunks.empty()) continue;
    held.divided.heads = held.divided.heads || piece.key_heads != Range(held.sizes.key_heads);
    held.divided.batch = held.divided.batch || piece.batch != Range(held.sizes.batch);
    const std::int64_t per_task = held.passes[static_cast<std::size_t>(piece.pass)].chunks_per_task;
    held.divided.chunks = held.divided.chunks || (per_task > 1 && piece.chunks != chunks);
  }
}

// Which keys of others this rank looks at.
void find_needs(Plan::Held& held) {
  const backend::Sizes& sizes = held.sizes;
  KeyNeeds all(sizes.key_batch, sizes.key_heads);
  for (const Part& part : held.parts) {
    const Range batch = sizes.key_batch == 1 ? Range(1) : part.piece.batch;
    for (const Slice& slice : part.slices) {
      const std::vector<Ranges> lists = keys_of(part, slice, sizes);
      if (lists.size() == 1) {
        all.add(batch, part.piece.key_heads, lists.front());
        continue;
      }
      std::size_t list = 0;
      for (std::int64_t b = batch.begin; b < batch.end; ++b)
        for (std::int64_t h = part.piece.key_heads.begin; h < part.piece.key_heads.end; ++h)
          all.add({b, b + 1}, {h, h + 1}, lists[list++]);
    }
  }
  for (int r = 0; r < held.ranks(); ++r) {
    const Range shard = r == held.rank() ? Range(0) : Range{held.keys.begin(r), held.keys.end(r)};
    held.from.push_back(all.inside(shard));
  }
}

// They are told to those who have them, as are rows of dK and dV to come.
void tell_needs(Plan::Held& held) {
  std::vector<std::vector<std::byte>> needs, sums;
  for (const KeyNeeds& from : held.from) needs.push_back(from.to_bytes());
  for (const auto& rows : held.sums.to()) sums.push_back(to_bytes(rows));
  for (const std::vector<std::byte>& bytes : held.channel.swap(needs, "plan"))
    held.to.push_back(KeyNeeds::from_bytes(bytes));
  held.to[static_cast<std::size_t>(held.rank())] =
      KeyNeeds(held.sizes.key_batch, held.sizes.key_heads);
  for (const std::vector<std::byte>& bytes : held.channel.swap(sums, "plan"))
    held.added.push_back(sums_from_bytes(bytes));
}

}  // namespace

std::string machine_of(const backend::Backend& backend) {
  return fmt::format("Treadle {}, {}", version(), backend.machine());
}

// Sums that are made in place are chains over all pairs of a task group; others are made task by task.
Divisible divisible_by(const plan::CaptureReach& reach, const Plan::Held& held) {
  if (held.options.sums == Sums::per_rank) return {};
  const bool in_place = reach.by_key && reach.by_query;
  const bool shares_keys = held.sizes.key_batch == 1 && held.sizes.batch > 1;
  return {.heads = !in_place || reach.by_head,
          .batch = (!in_place || reach.by_batch) && !shares_keys,
          .chunks = reach.by_key};
}

namespace {

struct Asked {
  const TensorSpec &q, &k, &v;
  const Shards &queries, &keys;
  const Call& call;
  const PlanOptions& options;
  const Assign& assign;
};

void find_plan(Plan::Held& held, const Attention::Compiled& compiled, const Asked& asked) {
  const auto& [q, k, v, queries, keys, call, options, assign] = asked;
  Channel& channel = held.channel;
  Envelope own;
  own.reserved = std::random_device()();
  const std::vector<Envelope> all = channel.gather(own, "plan");
  if (first_refusing(all) >= 0) throw_failure(channel, all, {});
  check_same_call(channel, all);
  held.id = all.front().reserved << 1 | 1;

  std::optional<backend::Bindings> bound;
  together(channel, [&] {
    check_options(options);
    held.sizes = api::check_inputs("plan", q, k, v);
    check_shards("queries", queries, held.ranks(), held.sizes.queries.count());
    check_shards("keys", keys, held.ranks(), held.sizes.keys.count());
    api::refuse_offsets("plan", call, "shards");
    if (!call.layout.empty()) base::fail("plan: a layout is given; plans make their own");
    check_sharded(options.sharded);
  });
  held.queries = queries;
  held.keys = keys;
  held.options = options;
  const GatheredCaptures gathered(held, Envelope::Kind::plan, compiled, call);
  together(channel, [&] {
    bound = api::bindings_of(compiled.program,
                             api::bind("plan", compiled.captures, gathered.call().captures));
  });
  held.machine = machine_of(*compiled.backend);
  held.mask = compiled.mask;
  held.q = q.dtype;
  held.k = k.dtype;
  held.v = v.dtype;
  check_equal(channel, "plan", std::array{Claim{"the build", held.machine}});
  check_equal(
      channel, "plan",
      std::array{
          Claim{"q", text_of(q)}, Claim{"k", text_of(k)}, Claim{"v", text_of(v)},
          Claim{"shards of queries", text_of(queries)}, Claim{"shards of keys", text_of(keys)},
          Claim{"options", text_of(options)}, Claim{"a mask with hash", to_string(held.mask)},
          Claim{"captures of the mask:", text_of_captures(compiled.program.mask, bound->mask)}});

  std::optional<base::Workers> workers;
  std::unique_ptr<backend::QueryPasses> passes;
  together(channel, [&] {
    workers.emplace(api::workers_of("plan", call));
    passes = compiled.backend->passes(held.sizes, *bound, *workers);
    if (passes == nullptr) base::fail("plan: Backend::reference runs on one machine only");
    held.passes = passes_of(*passes);
  });
  check_equal(channel, "plan", std::array{Claim{"passes", text_of(held.passes)}});

  std::vector<PassWork> work;
  measure(held, *passes, *workers, work);
  std::vector<Piece> pieces;
  together(channel, [&] { pieces = assign(held, work); });
  together(channel, [&] {
    find_parts(held, pieces, *passes, *workers);
    find_needs(held);
    held.sums = SumPlaces(held.parts, held.passes, held.sizes, held.keys);
  });
  tell_needs(held);
  together(channel, [&] {
    held.forward = traffic_of(held, forward_rows(held, true, false), false);
    held.backward = traffic_of(held, backward_rows(held), true);
  });
}

}  // namespace

Plan make_plan(const Attention& attention, std::shared_ptr<Exchange> exchange, const TensorSpec& q,
               const TensorSpec& k, const TensorSpec& v, const Shards& queries, const Shards& keys,
               const Call& call, const PlanOptions& options, const Assign& assign) {
  if (exchange == nullptr) base::fail("plan: there is no exchange");
  // A patience that is wrong is told with the rest.
  const auto patience = options.patience.count() > 0 ? options.patience : PlanOptions().patience;
  auto shared = std::make_shared<Plan::Held>(std::move(exchange), patience);
  shared->channel.keep_together("plan", [&] {
    find_plan(*shared, attention.compiled(), {q, k, v, queries, keys, call, options, assign});
  });
  return Plan(std::move(shared));
}

Assignment assign_work(const Attention& attention, const Call& call, const Plan::Held& held,
                       std::span<const PassWork> work) {
  const backend::Sizes& s = held.sizes;
  PlanCall of{.batch = s.batch,
              .key_batch = s.key_batch,
              .key_heads = s.key_heads,
              .per_key_head = held.per_key_head(),
              .queries = s.queries,
              .keys = s.keys,
              .dim = s.dim,
              .value_dim = s.value_dim,
              .query_bytes = static_cast<std::int64_t>(size_of(held.q)),
              .key_bytes = static_cast<std::int64_t>(size_of(held.k)),
              .value_bytes = static_cast<std::int64_t>(size_of(held.v))};
  std::vector<layout::Tiles> tiles;
  for (const PassPlan& pass : held.passes) {
    of.tiles_per_leaf.push_back(pass.tiles_per_leaf);
    tiles.push_back(pass.tiles);
  }
  const Attention::Compiled& compiled = attention.compiled();
  const std::vector<const Capture*> captures = api::bind("plan", compiled.captures, call.captures);
  const bool tasks_are_chunks = std::ranges::all_of(
      held.passes, [](const PassPlan& pass) { return pass.chunks_per_task == 1; });
  for (const std::string& name : compiled.gradients) {
    const int rank = (*std::ranges::find(captures, name, &Capture::name))->view().rank();
    const Divisible by =
        divisible_by(plan::capture_reach(compiled.program.derivative, name, rank), held);
    of.divisible.heads = of.divisible.heads && by.heads;
    of.divisible.batch = of.divisible.batch && by.batch;
    of.divisible.chunks = of.divisible.chunks && (by.chunks || tasks_are_chunks);
  }
  return assign(of, work, tiles, held.queries, held.keys, held.options);
}

Plan plan(const Attention& attention, std::shared_ptr<Exchange> exchange, const TensorSpec& q,
          const TensorSpec& k, const TensorSpec& v, const Shards& queries, const Shards& keys,
          const Call& call, const PlanOptions& options) {
  const auto take = [&](Plan::Held& held, std::span<const PassWork> work) {
    const Assignment assigned = assign_work(attention, call, held, work);
    held.balance = assigned.taken().balance;
    held.description = assigned.describe();
    return assigned.pieces;
  };
  return make_plan(attention, std::move(exchange), q, k, v, queries, keys, call, options, take);
}

double Plan::balance() const { return held_->balance; }
Traffic Plan::forward_traffic() const { return held_->forward; }
Traffic Plan::backward_traffic() const { return held_->backward; }
Traffic Plan::forward_moved() const { return held_->forward_moved; }
Traffic Plan::backward_moved() const { return held_->backward_moved; }

std::int64_t Plan::bytes_of_all_gather() const {
  const backend::Sizes& s = held_->sizes;
  const std::int64_t row = RowBytes().add(held_->k, s.dim).add(held_->v, s.value_dim).sum;
  return s.key_batch * s.key_heads * (s.keys.count() - held_->own_keys().count()) * row;
}

std::int64_t Plan::memory() const {
  const backend::Sizes& s = held_->sizes;
  std::int64_t bytes = held_->forward.sent + held_->forward.received;
  const std::int64_t row = RowBytes().add(held_->q, s.dim).sum;
  const RowTraffic rows = forward_rows(*held_, true, false);
  for (const Part& part : held_->parts)
    bytes += part.rows() * part.piece.batch.count() * part.heads(held_->per_key_head()).count() *
             (row + rows.back(part));
  return bytes;
}

std::string Plan::describe() const { return held_->description; }

}  // namespace treadle::distributed
