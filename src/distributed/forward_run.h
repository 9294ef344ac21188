// ForwardRun: what one rank does in a distributed forward call (forward.cpp): its memory, its messages, its parts.
//
//   ForwardRun run(held, facts, mine, lse, max);   // takes all memory, packs what is sent
//   run.in().start_after(...);
//   run.compute();                                 // which receives, and sends as soon as it can
//   run.send();                                    // what has not left yet
//   run.finish();
//   run.deliver(results);
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "api/check.h"
#include "api/positions.h"
#include "api/run_call.h"
#include "base/copy.h"
#include "base/error.h"
#include "distributed/call_facts.h"
#include "distributed/packed_rows.h"
#include "distributed/row_join.h"
#include "distributed/row_mail.h"
#include "distributed/shard_keys.h"
#include "distributed/sharded_captures.h"
#include "run/row_states.h"

namespace treadle::distributed {

// Where a part's rows are, and what it finds.
struct ForwardRoom {
  PackedRows q, out, lse, max;
  struct State {
    PackedRows maximum, weight, sums;
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
        meet_(held.channel, "forward"),
        back_(held.channel, "forward") {
    make_rooms();
    make_mail();
    keys_ = std::make_unique<ShardKeys>(own_keys_, held_.keys, held_.rank(), held_.from, in_);
  }

  Mail& in() { return in_; }

  // Rows of others as soon as they are here, for what is found of them goes back; own ones meanwhile.
  void compute() {
    std::vector<Work> own, foreign;
    for (std::size_t p = 0; p < held_.parts.size(); ++p) {
      for (Work& work : work_of(p)) {
        const bool here = std::ranges::all_of(work.ranks, [&](int r) { return r == held_.rank(); });
        (here ? own : foreign).push_back(std::move(work));
      }
    }
    std::size_t next = 0;
    while (next < own.size() || !foreign.empty()) {
      in_.poll();
      // Who has nothing else to do waits.
      if (next == own.size())
        for (const int r : foreign.front().ranks)
          if (r != held_.rank()) in_.await(static_cast<std::size_t>(r));
      const std::vector<Work> ready = take_ready(foreign);
      if (!ready.empty()) {
        run(ready);
        send_done(foreign);
      } else if (next < own.size()) {
        const std::size_t end = foreign.empty() ? own.size() : next + 1;
        run({own.data() + next, end - next});
        next = end;
      }
    }
  }

  // What has not left yet: announced messages leave, whatever has become of the work.
  void send() {
    meet();
    send_done({});
  }
  void finish() {
    in_.finish();
    if (!held_.meetings.empty()) meet_.finish();
    back_.finish();
    for (const std::unique_ptr<Mail>& mail : out_) mail->finish();
    count(held_.forward_moved, in_);
    count(held_.forward_moved, meet_);
    count(held_.forward_moved, back_);
    for (const std::unique_ptr<Mail>& mail : out_) count(held_.forward_moved, *mail);
  }

  // Allocates little, after all ranks have agreed that all is well.
  void deliver(const ForwardViews& results) {
    std::vector<FoundRows> found;
    std::vector<std::vector<RowRun>> runs;
    runs.reserve(held_.away.size());
    const layout::Range own = held_.own_queries();
    for (std::size_t p = 0; p < held_.parts.size(); ++p) {
      const Part& part = held_.parts[p];
      const auto& rows = part.from[static_cast<std::size_t>(held_.rank())];
      if (rows.empty()) continue;
      const layout::Range heads = part.heads(held_.per_key_head());
      ForwardRoom& room = rooms_[p];
      if (part.final) {
        unpack_rows(results.out, own.begin, part.piece.batch, heads, rows, room.out.view(),
                    facts_.workers.unstoppable());
        if (lse_)
          unpack_rows(*results.lse, own.begin, part.piece.batch, heads, rows, room.lse.view(),
                      facts_.workers.unstoppable());
        if (max_)
          unpack_rows(*results.max, own.begin, part.piece.batch, heads, rows, room.max.view(),
                      facts_.workers.unstoppable());
        continue;
      }
      if (part.cut) continue;
      const run::StateViews& views = room.states.front().views;
      found.push_back({part.piece.pass, 0, part.piece.batch, heads, rows, part.rows(),
                       views.maximum, views.weight, views.sums});
    }
    for (const Mail::Message& message : back_.receives) {
      const std::byte* at = message.bytes.data();
      for (const Away& away : held_.away) {
        if (away.rank != message.rank) continue;
        const PartShape& shape = away.shape;
        if (shape.cut) continue;
        const layout::Range heads = shape.heads(held_.per_key_head());
        if (shape.final) {
          put_rows(results.out, own.begin, shape.piece.batch, heads, away.rows, at);
          if (lse_) put_rows(*results.lse, own.begin, shape.piece.batch, heads, away.rows, at);
          if (max_) put_rows(*results.max, own.begin, shape.piece.batch, heads, away.rows, at);
          at = aligned(at);
          continue;
        }
        runs.push_back(one_after_another(away.rows));
        const std::int64_t rows = rows_moved(shape, away.rows, held_.per_key_head());
        const auto size = static_cast<std::int64_t>(size_of(held_.sizes.compute));
        const std::byte *maximum = at, *weight = at + rows * size, *sums = weight + rows * size;
        at = sums + rows * size * held_.sizes.value_dim;
        found.push_back({shape.piece.pass, 0, shape.piece.batch, heads, runs.back(),
                         rows_of(away.rows), maximum, weight, sums});
        at = aligned(at);
      }
    }
    join_states({found, own}, held_.sizes, facts_.sinks,
                facts_.dropout ? facts_.dropout->scale : 1.0, results, nullptr,
                facts_.workers.unstoppable());
  }

  // For the next call, which does without if there is no memory to keep it.
  void keep_memory() {
    try {
      keep_buffers();
    } catch (const std::bad_alloc&) {
      // They are freed.
    }
  }

 private:
  void make_rooms() {
    const DType compute = held_.sizes.compute;
    for (const Part& part : held_.parts) {
      const std::int64_t b = part.piece.batch.count(), h = part.heads(held_.per_key_head()).count(),
                         rows = part.rows();
      ForwardRoom& room = rooms_.emplace_back();
      const auto make = [&](DType type, const Dims& shape) {
        return PackedRows(held_.spare_forward, type, shape);
      };
      room.q = make(held_.q, {b, h, part.joins ? 0 : rows, held_.sizes.dim});
      room.out = make(held_.q, {b, h, part.final ? rows : 0, held_.sizes.value_dim});
      if (part.final && lse_) room.lse = make(compute, {b, h, rows});
      if (part.final && max_) room.max = make(compute, {b, h, rows});
      for (std::int64_t s = 0; part.states && s < part.slice_count(); ++s) {
        ForwardRoom::State& state = room.states.emplace_back();
        state.maximum = make(compute, {b, h, rows});
        state.weight = make(compute, {b, h, rows});
        state.sums = make(compute, {b, h, rows, held_.sizes.value_dim});
        state.views = {state.maximum.view().data(), state.weight.view().data(),
                       state.sums.view().data()};
      }
    }
  }

  void keep_buffers() {
    std::vector<Buffer> all;
    for (ForwardRoom& room : rooms_) {
      for (PackedRows* rows : {&room.q, &room.out, &room.lse, &room.max})
        all.push_back(rows->release());
      for (ForwardRoom::State& state : room.states)
        for (PackedRows* rows : {&state.maximum, &state.weight, &state.sums})
          all.push_back(rows->release());
    }
    in_.release(all);
    meet_.release(all);
    back_.release(all);
    for (const std::unique_ptr<Mail>& mail : out_) mail->release(all);
    held_.spare_forward.keep(std::move(all));
  }

  void make_mail() {
    const RowTraffic rows = forward_rows(held_, lse_, max_);
    const layout::Range own = held_.own_queries();
    for (int r = 0; r < held_.ranks(); ++r) {
      const auto at = static_cast<std::size_t>(r);
      const bool self = r == held_.rank();
      Buffer sent = held_.spare_forward.take(
          self ? 0 : bytes_of(held_.to[at], own_keys_) + bytes_to_parts(held_, r, rows.there));
      in_.sends.push_back({r, std::move(sent)});
      in_.receives.push_back(
          {r, held_.spare_forward.take(self ? 0
                                            : bytes_of(held_.from[at], own_keys_) +
                                                  bytes_from_homes(held_, r, rows.there))});
      if (self) continue;
      if (const std::int64_t bytes = bytes_met(held_, held_.rank(), r, rows.met); bytes > 0)
        meet_.sends.push_back({r, held_.spare_forward.take(bytes)});
      if (const std::int64_t bytes = bytes_met(held_, r, held_.rank(), rows.met); bytes > 0)
        meet_.receives.push_back({r, held_.spare_forward.take(bytes)});
      if (const std::int64_t bytes = bytes_from_parts(held_, r, rows); bytes > 0)
        back_.receives.push_back({r, held_.spare_forward.take(bytes)});
      if (const std::int64_t bytes = bytes_to_homes(held_, r, rows); bytes > 0) {
        out_.push_back(std::make_unique<Mail>(held_.channel, "forward"));
        out_.back()->sends.push_back({r, held_.spare_forward.take(bytes)});
      }
    }
    sent_.assign(out_.size(), false);
    base::parallel_for(facts_.workers, std::ssize(in_.sends), [&](std::int64_t r) {
      const Mail::Message& message = in_.sends[static_cast<std::size_t>(r)];
      if (message.bytes.size() == 0) return;
      const KeyNeeds& needs = held_.to[static_cast<std::size_t>(r)];
      pack(needs, own_keys_, message.bytes.data());
      std::byte* to = message.bytes.data() + bytes_of(needs, own_keys_);
      held_.rows_to[static_cast<std::size_t>(r)].take(q_.view(), own.begin, to);
    });
    for (std::size_t p = 0; p < held_.parts.size(); ++p) {
      const Part& part = held_.parts[p];
      if (part.joins) continue;
      pack_rows(rooms_[p].q.view(), q_.view(), own.begin, part.piece.batch,
                part.heads(held_.per_key_head()), part.from[static_cast<std::size_t>(held_.rank())],
                facts_.workers);
    }
  }

  // Some rows of a part against some keys: a call of its own.
  struct Work {
    std::size_t part = 0, slice = 0;
    const Layout* layout = nullptr;
    layout::Range rows;
    std::vector<int> ranks;  // that have them
  };
  std::vector<Work> work_of(std::size_t p) const {
    const Part& part = held_.parts[p];
    std::vector<Work> all;
    for (const Batch& batch : part.batches)
      all.push_back({p, 0, &batch.layout, batch.rows, batch.ranks});
    if (!all.empty()) return all;
    std::vector<int> ranks;
    for (int r = 0; r < held_.ranks(); ++r)
      if (!part.from[static_cast<std::size_t>(r)].empty()) ranks.push_back(r);
    for (std::size_t s = 0; s < part.slices.size(); ++s)
      all.push_back({p, s, &part.slices[s].layout, part.rows(), ranks});
    return all;
  }

  // Takes out the work whose rows are all here.
  std::vector<Work> take_ready(std::vector<Work>& foreign) {
    std::vector<Work> ready;
    std::erase_if(foreign, [&](Work& work) {
      for (const int r : work.ranks)
        if (r != held_.rank() && !in_.has(static_cast<std::size_t>(r))) return false;
      for (const int r : work.ranks) take_in(work.part, r);
      ready.push_back(std::move(work));
      return true;
    });
    return ready;
  }

  // Rows of another rank that a part works on.
  void take_in(std::size_t p, int rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (rank == held_.rank() || !taken_.insert({p, rank}).second) return;
    held_.rows_from[at].put(held_.parts[p], held_.parts[p].from[at], rooms_[p].q.view(),
                            in_.receives[at].bytes.data() + bytes_of(held_.from[at], own_keys_));
  }

  // What parts of cut leaves found, at those that join it.
  void meet() {
    if (met_) return;
    for (Mail::Message& message : meet_.sends) {
      std::byte* to = message.bytes.data();
      for (const Meeting& meeting : held_.meetings) {
        if (meeting.cut_rank != held_.rank() || meeting.joining_rank != message.rank) continue;
        for (const ForwardRoom::State& state : rooms_[meeting.cut].states)
          for (const PackedRows* rows : {&state.maximum, &state.weight, &state.sums})
            take_meeting(meeting, rows->view(), to);
      }
    }
    if (!held_.meetings.empty()) {
      meet_.start();
      meet_.finish();
    }
    for (std::size_t p = 0; p < held_.parts.size(); ++p)
      if (held_.parts[p].joins) join_met(p);
    met_ = true;
  }

  void join_met(std::size_t p) {
    const Part& part = held_.parts[p];
    const backend::Sizes sizes = part.sizes(held_.sizes);
    ForwardRoom& room = rooms_[p];
    std::vector<FoundRows> found;
    std::deque<RowRun> runs;
    const auto size = static_cast<std::int64_t>(size_of(held_.sizes.compute));
    std::map<int, const std::byte*> at;
    for (const Mail::Message& message : meet_.receives) at[message.rank] = message.bytes.data();
    for (const Meeting& meeting : held_.meetings) {
      if (meeting.joining_rank != held_.rank()) continue;
      const bool here = meeting.cut_rank == held_.rank();
      for (std::int64_t s = 0; s < meeting.slices; ++s) {
        // Of other parts, too, whose states come before in the message.
        const std::byte* met = at[meeting.cut_rank];
        const std::int64_t numbers = meeting.count() * size;
        if (!here) at[meeting.cut_rank] += numbers * (2 + held_.sizes.value_dim);
        if (meeting.joining != p) continue;
        runs.push_back(meeting.rows);
        if (!here) runs.back().row = 0;
        const std::span<const RowRun> one(&runs.back(), 1);
        if (here) {
          found.push_back(met_in_part(meeting, s, held_.parts[meeting.cut].rows(), one));
          const run::StateViews& views =
              rooms_[meeting.cut].states[static_cast<std::size_t>(s)].views;
          found.back().maximum = views.maximum;
          found.back().weight = views.weight;
          found.back().sums = views.sums;
        } else {
          found.push_back(met_in_message(meeting, s, one));
          found.back().maximum = met;
          found.back().weight = met + numbers;
          found.back().sums = met + 2 * numbers;
        }
      }
    }
    ForwardViews views{room.out.view(), std::nullopt, std::nullopt};
    if (part.final && lse_) views.lse = room.lse.view();
    if (part.final && max_) views.max = room.max.view();
    const auto first = static_cast<std::size_t>(sizes.first_h),
               heads = static_cast<std::size_t>(sizes.heads);
    join_states({found, part.rows()}, sizes,
                facts_.sinks.empty() ? std::span<const double>()
                                     : std::span(facts_.sinks).subspan(first, heads),
                facts_.dropout ? facts_.dropout->scale : 1.0, views,
                part.final ? nullptr : &room.states.front().views, facts_.workers.unstoppable());
  }

  // Sends to the ranks of whose rows there are none in work that is still to be done. Before that nothing may be sent
  // but when all ranks have begun.
  void send_done(std::span<const Work> left) {
    for (std::size_t i = 0; i < out_.size(); ++i) {
      Mail::Message& message = out_[i]->sends.front();
      const auto rank = static_cast<std::size_t>(message.rank);
      const bool waits = std::ranges::any_of(
          left, [&](const Work& work) { return !held_.parts[work.part].from[rank].empty(); });
      const auto meets = [&](const Part& part) { return part.joins && !part.from[rank].empty(); };
      // Messages between two ranks arrive in the order in which they were sent.
      const bool meets_there =
          std::ranges::find(meet_.sends, message.rank, &Mail::Message::rank) != meet_.sends.end();
      const bool meets_first = !met_ && (meets_there || std::ranges::any_of(held_.parts, meets));
      if (sent_[i] || waits || meets_first) continue;
      std::byte* to = message.bytes.data();
      for (std::size_t p = 0; p < held_.parts.size(); ++p) {
        const auto& runs = held_.parts[p].from[rank];
        const ForwardRoom& room = rooms_[p];
        if (held_.parts[p].final) {
          take_packed(room.out.view(), runs, to);
          if (lse_) take_packed(room.lse.view(), runs, to);
          if (max_) take_packed(room.max.view(), runs, to);
        }
        if (!held_.parts[p].final && !held_.parts[p].cut)
          for (const PackedRows* rows : {&room.states.front().maximum, &room.states.front().weight,
                                         &room.states.front().sums})
            take_packed(rows->view(), runs, to);
        to = aligned(to);
      }
      out_[i]->start();
      sent_[i] = true;
    }
    if (back_started_ || (!met_ && !held_.meetings.empty())) return;
    back_.start();
    back_started_ = true;
  }

  void run(std::span<const Work> some) {
    std::vector<std::unique_ptr<PartRun>> all;
    for (const Work& work : some) all.push_back(std::make_unique<PartRun>(*this, work));
    std::vector<backend::ForwardRequest> requests;
    for (const auto& one : all) requests.push_back(one->request(*this));
    facts_.compiled.backend->forward(requests);
  }

  // Requests refer to it.
  struct PartRun {
    const Part& part;
    const Work work;
    ForwardRoom& room;
    backend::Sizes sizes;
    PartKeys keys;
    Inputs inputs;
    ForwardViews results;

    PartRun(ForwardRun& run, const Work& what)
        : part(run.held_.parts[what.part]),
          work(what),
          room(run.rooms_[what.part]),
          sizes(part.sizes(run.held_.sizes)),
          keys(*run.keys_, run.held_.sizes.key_batch == 1 ? layout::Range(1) : part.piece.batch,
               part.piece.key_heads),
          inputs{rows(ConstView(room.q.view())), run.none_k_, run.none_v_},
          results{part.states ? room.out.view() : rows(room.out.view()), std::nullopt,
                  std::nullopt} {
      if (part.states) return;
      if (run.lse_) results.lse = rows(room.lse.view());
      if (run.max_) results.max = rows(room.max.view());
    }
    template <class Void>
    BasicView<Void> rows(const BasicView<Void>& of_part) const {
      return api::rows_of(of_part, of_part.size(0), work.rows);
    }
    backend::ForwardRequest request(const ForwardRun& run) {
      return {run.facts_.request(sizes, inputs, *work.layout, keys), results,
              part.states ? &room.states[work.slice].views : nullptr};
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
  Mail in_, meet_, back_;
  std::vector<std::unique_ptr<Mail>> out_;  // one for each rank that gets something
  std::vector<bool> sent_;
  std::set<std::pair<std::size_t, int>> taken_;  // rows that have come: part and rank
  bool met_ = false, back_started_ = false;
  std::unique_ptr<ShardKeys> keys_;
};

}  // namespace treadle::distributed
