// BackwardRun: what one rank does in a distributed backward call (backward.cpp): its memory, its messages, its parts.
// As ForwardRun, but that it may have to compute and send twice.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "api/check.h"
#include "api/run_call.h"
#include "api/sinks.h"
#include "backend/held_layout.h"
#include "base/copy.h"
#include "base/element.h"
#include "base/error.h"
#include "distributed/bytes.h"
#include "distributed/call_facts.h"
#include "distributed/capture_records.h"
#include "distributed/given.h"
#include "distributed/packed_rows.h"
#include "distributed/row_delta.h"
#include "distributed/row_join.h"
#include "distributed/row_mail.h"
#include "distributed/sharded_captures.h"
#include "distributed/sum_sink.h"
#include "run/backward_share.h"
#include "run/nonfinite.h"
#include "run/row_terms.h"

namespace treadle::distributed {

// Where a part's rows are, and what it finds.
struct BackwardRoom {
  PackedRows q, dout, lse, delta;
  std::vector<PackedRows> dq;  // slice by slice
};

class BackwardRun {
 public:
  BackwardRun(Plan::Held& held, const CallFacts& facts, const Given& given)
      : held_(held),
        facts_(facts),
        q_(given.mine.q),
        k_(given.mine.k),
        v_(given.mine.v),
        dout_(given.dout),
        lse_(given.saved.lse),
        delta_(delta_of(given, held, facts.workers)),
        own_keys_{k_.view(), v_.view(), held.own_keys()},
        rows_(backward_rows(held)),
        in_(held.channel, "backward"),
        meet_(std::make_unique<Mail>(held.channel, "backward")),
        out_(std::make_unique<Mail>(held.channel, "backward")),
        own_sums_(held.spare_backward.take(
            bytes_of_sums(held, held.sums.to()[static_cast<std::size_t>(held.rank())]))),
        records_(counts(), held.sizes.compute, held.ranks()) {
    check_captures();
    make_rooms();
    make_mail();
    keys_ = std::make_unique<ShardKeys>(own_keys_, held_.keys, held_.rank(), held_.from, in_);
  }

  Mail& in() { return in_; }

  // Whether all has to be computed again, exactly.
  bool compute(run::Nonfinite nonfinite) {
    records_.clear();
    clear(own_sums_.bytes());
    for (Mail::Message& message : out_->sends) clear(message.bytes.bytes());
    find_targets();
    bool unclear = run(nonfinite, [](const Part& part) { return part.own; });
    const auto foreign = [](const Part& part) { return !part.own; };
    if (std::ranges::none_of(held_.parts, foreign)) return unclear;
    take_in();
    return run(nonfinite, foreign) || unclear;
  }

  void send() {
    meet();
    for (Mail::Message& message : out_->sends) {
      std::byte* to = message.bytes.data();
      for (std::size_t p = 0; p < held_.parts.size(); ++p) {
        if (!held_.parts[p].cut)
          take_packed(dq_of(p), held_.parts[p].from[static_cast<std::size_t>(message.rank)], to);
        to = aligned(to);
      }
    }
    out_->start();
  }
  void finish() {
    in_.finish();
    out_->finish();
    if (!counted_) count(held_.backward_moved, in_);
    counted_ = true;
    count(held_.backward_moved, *meet_);
    count(held_.backward_moved, *out_);
  }
  // To send the same messages again.
  void start_again() {
    for (std::unique_ptr<Mail>* mail : {&meet_, &out_}) {
      auto next = std::make_unique<Mail>(held_.channel, "backward");
      next->sends = std::move((*mail)->sends);
      next->receives = std::move((*mail)->receives);
      *mail = std::move(next);
    }
  }

  std::vector<Tensor> captured() const {
    return records_.join(held_.channel, "backward", held_.options.sums);
  }

  void deliver(const View& dq, const View& dk, const View& dv) {
    deliver_dq(dq);
    std::vector<SumMessage> messages(static_cast<std::size_t>(held_.ranks()));
    for (const Mail::Message& message : out_->receives) {
      const auto rank = static_cast<std::size_t>(message.rank);
      messages[rank] = {held_.added[rank],
                        message.bytes.data() + bytes_from_parts(held_, message.rank, rows_)};
    }
    const auto self = static_cast<std::size_t>(held_.rank());
    messages[self] = {held_.sums.to()[self], own_sums_.data()};
    join_sums(messages, held_.sizes, held_.own_keys(), held_.passes.size(), held_.options.sums,
              facts_.scale, dk, dv, facts_.workers.unstoppable());
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
  static void clear(std::span<std::byte> bytes) {
    if (!bytes.empty()) std::memset(bytes.data(), 0, bytes.size());
  }
  [[nodiscard]] const Capture& capture(std::string_view name) const {
    return **std::ranges::find(facts_.captures, name, &Capture::name);
  }
  [[nodiscard]] std::vector<std::int64_t> counts() const {
    std::vector<std::int64_t> all;
    for (const std::string& name : facts_.compiled.gradients)
      all.push_back(capture(name).view().count());
    return all;
  }

  void keep_buffers() {
    std::vector<Buffer> all;
    for (BackwardRoom& room : rooms_) {
      for (PackedRows* rows : {&room.q, &room.dout, &room.lse, &room.delta})
        all.push_back(rows->release());
      for (PackedRows& dq : room.dq) all.push_back(dq.release());
    }
    in_.release(all);
    meet_->release(all);
    out_->release(all);
    all.push_back(std::move(own_sums_));
    held_.spare_backward.keep(std::move(all));
  }

  // Sums of some captures' gradients cannot be divided as this plan divides the work.
  void check_captures() {
    for (const std::string& name : facts_.compiled.gradients) {
      const plan::CaptureReach reach = plan::capture_reach(facts_.compiled.program.derivative, name,
                                                           capture(name).view().rank());
      reaches_.push_back(reach);
      const Divisible by = divisible_by(reach, held_);
      const Divisible& cut = held_.divided;
      if ((cut.heads && !by.heads) || (cut.batch && !by.batch) || (cut.chunks && !by.chunks)) {
        base::fail(
            "backward: the plan divides the work in a way that the sums of the gradient of {} "
            "cannot be; make the plan "
            "with this attention",
            name);
      }
    }
  }

  void make_rooms() {
    const DType compute = held_.sizes.compute;
    const layout::Range own = held_.own_queries();
    for (const Part& part : held_.parts) {
      const layout::Range heads = part.heads(held_.per_key_head());
      const std::int64_t b = part.piece.batch.count(), h = heads.count(), rows = part.rows();
      BackwardRoom& room = rooms_.emplace_back();
      const auto make = [&](DType type, const Dims& shape) {
        return PackedRows(held_.spare_backward, type, shape);
      };
      for (std::int64_t s = 0; s < part.slice_count(); ++s)
        room.dq.push_back(make(part.states ? compute : held_.q, {b, h, rows, held_.sizes.dim}));
      if (part.joins) continue;
      room.q = make(held_.q, {b, h, rows, held_.sizes.dim});
      room.dout = make(held_.q, {b, h, rows, held_.sizes.value_dim});
      room.lse = make(compute, {b, h, rows});
      room.delta = make(compute, {b, h, rows});
      const auto& mine = part.from[static_cast<std::size_t>(held_.rank())];
      const auto pack_all = [&](const PackedRows& to, const ConstView& from) {
        pack_rows(to.view(), from, own.begin, part.piece.batch, heads, mine, facts_.workers);
      };
      pack_all(room.q, q_.view());
      pack_all(room.dout, dout_.view());
      pack_all(room.lse, lse_.view());
      pack_all(room.delta, delta_);
    }
  }

  void make_mail() {
    const layout::Range own = held_.own_queries();
    for (int r = 0; r < held_.ranks(); ++r) {
      const auto at = static_cast<std::size_t>(r);
      const bool self = r == held_.rank();
      Buffer sent = held_.spare_backward.take(
          self ? 0 : bytes_of(held_.to[at], own_keys_) + bytes_to_parts(held_, r, rows_.there));
      in_.sends.push_back({r, std::move(sent)});
      in_.receives.push_back(
          {r, held_.spare_backward.take(self ? 0
                                             : bytes_of(held_.from[at], own_keys_) +
                                                   bytes_from_homes(held_, r, rows_.there))});
      if (self) continue;
      meet_->sends.push_back(
          {r, held_.spare_backward.take(bytes_met(held_, held_.rank(), r, rows_.met))});
      meet_->receives.push_back(
          {r, held_.spare_backward.take(bytes_met(held_, r, held_.rank(), rows_.met))});
      out_->sends.push_back(
          {r, held_.spare_backward.take(bytes_to_homes(held_, r, rows_) +
                                        bytes_of_sums(held_, held_.sums.to()[at]))});
      out_->receives.push_back(
          {r, held_.spare_backward.take(bytes_from_parts(held_, r, rows_) +
                                        bytes_of_sums(held_, held_.added[at]))});
    }
    base::parallel_for(facts_.workers, std::ssize(in_.sends), [&](std::int64_t r) {
      const Mail::Message& message = in_.sends[static_cast<std::size_t>(r)];
      if (message.bytes.size() == 0) return;
      const KeyNeeds& needs = held_.to[static_cast<std::size_t>(r)];
      pack(needs, own_keys_, message.bytes.data());
      std::byte* to = message.bytes.data() + bytes_of(needs, own_keys_);
      const ConstView delta = delta_;
      for (const ConstView* view : {&q_.view(), &dout_.view(), &lse_.view(), &delta})
        held_.rows_to[static_cast<std::size_t>(r)].take(*view, own.begin, to);
    });
  }

  void find_targets() {
    targets_.of.assign(static_cast<std::size_t>(held_.ranks()), nullptr);
    targets_.of[static_cast<std::size_t>(held_.rank())] = own_sums_.data();
    for (const Mail::Message& message : out_->sends)
      targets_.of[static_cast<std::size_t>(message.rank)] =
          message.bytes.data() + bytes_to_homes(held_, message.rank, rows_);
  }

  void take_in() {
    for (Mail::Message& message : in_.receives) {
      const auto rank = static_cast<std::size_t>(message.rank);
      if (bytes_from_homes(held_, message.rank, rows_.there) == 0 || message.rank == held_.rank())
        continue;
      in_.await(rank);
      const QueryNeeds& rows = held_.rows_from[rank];
      for (std::size_t p = 0; p < held_.parts.size(); ++p) {
        const Part& part = held_.parts[p];
        if (part.joins) continue;
        BackwardRoom& room = rooms_[p];
        const std::byte* from = message.bytes.data() + bytes_of(held_.from[rank], own_keys_);
        for (const PackedRows* to : {&room.q, &room.dout, &room.lse, &room.delta}) {
          const View& view = to->view();
          rows.put(part, part.from[rank], view, from);
          from += rows.rows() * (view.rank() == 4 ? view.size(3) : 1) *
                  static_cast<std::int64_t>(size_of(view.dtype()));
        }
      }
    }
  }

  template <class Wanted>
  bool run(run::Nonfinite nonfinite, const Wanted& wanted) {
    bool unclear = false;
    for (std::size_t p = 0; p < held_.parts.size(); ++p)
      for (std::size_t s = 0; wanted(held_.parts[p]) && s < held_.parts[p].slices.size(); ++s)
        unclear = run_slice(p, s, nonfinite) || unclear;
    return unclear;
  }

  bool run_slice(std::size_t p, std::size_t s, run::Nonfinite nonfinite) {
    const Part& part = held_.parts[p];
    BackwardRoom& room = rooms_[p];
    if (part.rows() == 0) return false;
    const backend::Sizes sizes = part.sizes(held_.sizes);
    if (sizes.keys.empty()) {
      const View& dq = room.dq[s].view();
      std::memset(dq.data(), 0, static_cast<std::size_t>(dq.count()) * size_of(dq.dtype()));
      return false;
    }
    const PartKeys keys(*keys_, held_.sizes.key_batch == 1 ? layout::Range(1) : part.piece.batch,
                        part.piece.key_heads);
    const Inputs inputs{room.q.view(), none_k_, none_v_};
    const ConstView dout = room.dout.view(), delta = room.delta.view();
    const Saved saved{dout, room.lse.view()};
    BackwardViews views{room.dq[s].view(), none_dk_.view(), none_dv_.view(), {}, std::nullopt};
    std::vector<Tensor> captured;
    for (const std::string& name : facts_.compiled.gradients) {
      captured.emplace_back(held_.sizes.compute, capture(name).view().shape());
      views.captures.push_back({name, captured.back().view()});
    }
    const std::int64_t per_task =
        held_.passes[static_cast<std::size_t>(part.piece.pass)].chunks_per_task;
    SumSink sink(held_, p, s, targets_, records_);
    if (!captured.empty())
      sink.set_tasks(task_numbers(part.slices[s].layout.held()->terms.front().layout, held_.sizes,
                                  part, reaches_, per_task));
    const run::BackwardShare share{.all_leaves = part.all_leaves,
                                   .parts = part.tree,
                                   .chunks_per_task = per_task,
                                   .adds_up = part.states,
                                   .scales = !part.states,
                                   .sink = &sink};
    const std::optional<ConstView> no_dlse;
    const backend::BackwardEnd end = facts_.compiled.backend->backward_part(
        {facts_.request(sizes, inputs, part.slices[s].layout, keys), saved, dout, no_dlse, views,
         &share, &delta},
        nonfinite);
    if (end == backend::BackwardEnd::unclear) return true;
    for (std::size_t c = 0; c < captured.size(); ++c) keep_in_place(part, c, captured[c]);
    return false;
  }

  // What tasks added to a gradient without handing it over. No element has more than one such sum.
  void keep_in_place(const Part& part, std::size_t c, const Tensor& captured) {
    const RecordPlace place{.capture = static_cast<std::int64_t>(c), .pass = part.piece.pass};
    const auto keep = [&](auto number) {
      using F = decltype(number);
      const auto* values = static_cast<const F*>(captured.view().data());
      constexpr std::int64_t page = 64;
      for (std::int64_t begin = 0; begin < captured.count(); begin += page) {
        const std::int64_t end = std::min(begin + page, captured.count());
        if (std::any_of(values + begin, values + end, [](F x) { return x != F{0}; }))
          records_.add(place, {begin, end}, values + begin);
      }
    };
    if (held_.sizes.compute == DType::f64) {
      keep(double{});
    } else {
      keep(float{});
    }
  }

  // What a part has for the owners of its rows.
  [[nodiscard]] const View& dq_of(std::size_t p) const { return rooms_[p].dq.front().view(); }

  // As in a forward.
  void meet() {
    for (Mail::Message& message : meet_->sends) {
      std::byte* to = message.bytes.data();
      for (const Meeting& meeting : held_.meetings)
        if (meeting.cut_rank == held_.rank() && meeting.joining_rank == message.rank)
          for (const PackedRows& dq : rooms_[meeting.cut].dq) take_meeting(meeting, dq.view(), to);
    }
    if (!held_.meetings.empty()) {
      meet_->start();
      meet_->finish();
    }
    for (std::size_t p = 0; p < held_.parts.size(); ++p)
      if (held_.parts[p].joins) join_met(p);
  }

  void join_met(std::size_t p) {
    const Part& part = held_.parts[p];
    const backend::Sizes sizes = part.sizes(held_.sizes);
    std::vector<FoundRows> found;
    std::deque<RowRun> runs;
    const std::int64_t row =
        held_.sizes.dim * static_cast<std::int64_t>(size_of(held_.sizes.compute));
    std::map<int, const std::byte*> at;
    for (const Mail::Message& message : meet_->receives) at[message.rank] = message.bytes.data();
    for (const Meeting& meeting : held_.meetings) {
      if (meeting.joining_rank != held_.rank()) continue;
      const bool here = meeting.cut_rank == held_.rank();
      for (std::int64_t s = 0; s < meeting.slices; ++s) {
        const std::byte* from = at[meeting.cut_rank];
        if (!here) at[meeting.cut_rank] += meeting.count() * row;
        if (meeting.joining != p) continue;
        runs.push_back(meeting.rows);
        if (!here) runs.back().row = 0;
        const std::span<const RowRun> one(&runs.back(), 1);
        found.push_back(here ? met_in_part(meeting, s, held_.parts[meeting.cut].rows(), one)
                             : met_in_message(meeting, s, one));
        found.back().sums =
            here ? rooms_[meeting.cut].dq[static_cast<std::size_t>(s)].view().data() : from;
      }
    }
    // Complete, or one of several terms, which their owner scales.
    join_gradients({{found, part.rows()}, part.final ? facts_.scale : 1.0}, sizes, dq_of(p),
                   facts_.workers.unstoppable());
  }

  void deliver_dq(const View& dq) {
    GradientsToJoin join{{{}, held_.own_queries()}, facts_.scale};
    std::vector<FoundRows> found;
    std::vector<std::vector<RowRun>> runs;
    runs.reserve(held_.away.size());
    const layout::Range own = held_.own_queries();
    for (std::size_t p = 0; p < held_.parts.size(); ++p) {
      const Part& part = held_.parts[p];
      const auto& rows = part.from[static_cast<std::size_t>(held_.rank())];
      if (rows.empty()) continue;
      const layout::Range heads = part.heads(held_.per_key_head());
      if (part.final) {
        unpack_rows(dq, own.begin, part.piece.batch, heads, rows, dq_of(p),
                    facts_.workers.unstoppable());
        continue;
      }
      if (!part.cut)
        found.push_back({part.piece.pass, 0, part.piece.batch, heads, rows, part.rows(), nullptr,
                         nullptr, rooms_[p].dq.front().view().data()});
    }
    for (const Mail::Message& message : out_->receives) {
      const std::byte* at = message.bytes.data();
      for (const Away& away : held_.away) {
        if (away.rank != message.rank) continue;
        const PartShape& shape = away.shape;
        if (shape.cut) continue;
        const layout::Range heads = shape.heads(held_.per_key_head());
        if (shape.final) {
          put_rows(dq, own.begin, shape.piece.batch, heads, away.rows, at);
          at = aligned(at);
          continue;
        }
        runs.push_back(one_after_another(away.rows));
        const std::int64_t bytes = rows_moved(shape, away.rows, held_.per_key_head()) *
                                   static_cast<std::int64_t>(size_of(held_.sizes.compute)) *
                                   held_.sizes.dim;
        found.push_back({shape.piece.pass, 0, shape.piece.batch, heads, runs.back(),
                         rows_of(away.rows), nullptr, nullptr, at});
        at += bytes;
        at = aligned(at);
      }
    }
    join.found = found;
    join_gradients(join, held_.sizes, dq, facts_.workers.unstoppable());
  }

  Plan::Held& held_;
  const CallFacts& facts_;
  ContiguousRows q_, k_, v_, dout_, lse_;
  Tensor delta_;
  OwnKeys own_keys_;
  RowTraffic rows_;
  Tensor none_k_{held_.k, {1, 1, 0, held_.sizes.dim}},
      none_v_{held_.v, {1, 1, 0, held_.sizes.value_dim}};
  Tensor none_dk_{held_.sizes.compute, {1, 1, 0, held_.sizes.dim}},
      none_dv_{held_.sizes.compute, {1, 1, 0, held_.sizes.value_dim}};
  std::vector<BackwardRoom> rooms_;
  Mail in_;
  std::unique_ptr<Mail> meet_, out_;
  Buffer own_sums_;
  SumTargets targets_;
  CaptureRecords records_;
  std::vector<plan::CaptureReach> reaches_;
  std::unique_ptr<ShardKeys> keys_;
  bool counted_ = false;
};

}  // namespace treadle::distributed
