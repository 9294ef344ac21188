// A distributed backward call, which goes as a forward one does (forward.cpp): rows of q, dout, lse and delta travel to
// who computes them, dQ comes back, nodes of dK and dV go to the owners of the keys. Then gradients of captures and
// sinks, which all ranks get. Read run_backward() first.
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
#include "distributed/forward_call.h"
#include "distributed/packed_rows.h"
#include "distributed/row_join.h"
#include "distributed/row_mail.h"
#include "distributed/sharded_captures.h"
#include "run/backward_share.h"
#include "run/nonfinite.h"
#include "run/row_terms.h"

namespace treadle::distributed {
namespace {

using layout::Range;

struct Given {
  const Inputs& mine;
  const Saved& saved;
  const ConstView& dout;
  const std::optional<ConstView>& dlse;
};

template <class F>
void find_delta(const Given& given, Tensor& delta, const base::Workers& workers) {
  const std::int64_t heads = delta.size(1), rows = delta.size(2), length = given.dout.size(3);
  const std::span<F> to = delta.data<F>();
  base::parallel_for(workers, delta.size(0) * heads, [&](std::int64_t i) {
    std::vector<F> out(static_cast<std::size_t>(length)), dout(out.size());
    const auto load = [&](const ConstView& view, std::int64_t row, std::vector<F>& numbers) {
      base::visit_dtype(view.dtype(), [&](auto element) {
        using T = typename decltype(element)::type;
        const std::int64_t at =
            i / heads * view.stride(0) + i % heads * view.stride(1) + row * view.stride(2);
        for (std::int64_t d = 0; d < length; ++d)
          numbers[static_cast<std::size_t>(d)] =
              static_cast<F>(base::load_as<T>(view.data(), at + d * view.stride(3)));
      });
    };
    for (std::int64_t row = 0; row < rows; ++row) {
      load(given.saved.out, row, out);
      load(given.dout, row, dout);
      F sum = run::row_product(dout.data(), out.data(), length);
      if (given.dlse) {
        const ConstView& dlse = *given.dlse;
        sum -=
            static_cast<const F*>(dlse.data())[i / heads * dlse.stride(0) +
                                               i % heads * dlse.stride(1) + row * dlse.stride(2)];
      }
      to[static_cast<std::size_t>(i * rows + row)] = sum;
    }
  });
}

Tensor delta_of(const Given& given, const Plan::Held& held, const base::Workers& workers) {
  const backend::Sizes& s = held.sizes;
  Tensor delta(s.compute, {s.batch, s.heads, held.own_queries().count()});
  if (s.compute == DType::f64) {
    find_delta<double>(given, delta, workers);
  } else {
    find_delta<float>(given, delta, workers);
  }
  return delta;
}

// Where a part's rows are, and what it finds.
struct BackwardRoom {
  PackedRows q, dout, lse, delta;
  std::vector<PackedRows> dq;  // slice by slice
};

// Where rows of dK and dV for their owners begin.
struct SumTargets {
  std::vector<std::byte*> of;  // by owner
};

// What a slice hands over, put where it belongs.
class Sink final : public run::ShareSink {
 public:
  Sink(const Plan::Held& held, std::size_t part, std::size_t slice, const SumTargets& targets,
       CaptureRecords& records)
      : held_(held), part_(part), slice_(slice), targets_(targets), records_(records) {}

  void set_tasks(std::vector<std::int64_t> numbers) { tasks_ = std::move(numbers); }

  void put(Sum sum, const plan::BackwardTask& task, std::size_t piece, Range keys, const void* rows,
           std::int64_t length) override {
    const Part& part = held_.parts[part_];
    const auto places = held_.sums.of(
        part_, slice_, task.key_batch * part.piece.key_heads.count() + task.key_head, piece);
    const auto size = static_cast<std::int64_t>(size_of(held_.sizes.compute));
    const std::int64_t of_dk = held_.sizes.dim * size, of_dv = held_.sizes.value_dim * size;
    const std::int64_t own = sum == Sum::dk ? of_dk : of_dv;
    auto place = std::ranges::partition_point(
        places, [&](const auto& p) { return p.keys.end <= keys.begin; });
    std::int64_t done = keys.begin;
    for (; done < keys.end; ++place) {
      if (place == places.end() || place->keys.begin > done)
        base::internal_error("keys from {} on of piece {} were not announced", done, piece);
      const std::int64_t end = std::min(keys.end, place->keys.end);
      std::byte* to =
          targets_.of[static_cast<std::size_t>(place->owner)] + place->row * (of_dk + of_dv);
      if (sum == Sum::dv) to += place->keys.count() * of_dk;
      to += (done - place->keys.begin) * own;
      const auto* from = static_cast<const std::byte*>(rows) + (done - keys.begin) * length * size;
      for (; done < end; ++done, to += own, from += length * size)
        std::memcpy(to, from, static_cast<std::size_t>(own));
    }
  }

  void put(std::size_t capture, std::int64_t task, std::size_t piece, Range elements,
           const void* values) override {
    const Part& part = held_.parts[part_];
    RecordPlace place{.capture = static_cast<std::int64_t>(capture),
                      .pass = part.piece.pass,
                      .task = tasks_[static_cast<std::size_t>(task)]};
    if (piece != whole_task) {
      const plan::TreePiece& node = part.tree.pieces[piece];
      place.level = node.level;
      place.first_leaf = node.leaves.begin;
      place.end_leaf = node.leaves.end;
      place.leaves = part.all_leaves;
    }
    records_.add(place, elements, values);
  }

 private:
  const Plan::Held& held_;
  std::size_t part_, slice_;
  const SumTargets& targets_;
  CaptureRecords& records_;
  std::vector<std::int64_t> tasks_;  // their numbers in the whole call
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
    const Range own = held_.own_queries();
    for (const Part& part : held_.parts) {
      const Range heads = part.heads(held_.per_key_head());
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
    const Range own = held_.own_queries();
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
    const PartKeys keys(*keys_, held_.sizes.key_batch == 1 ? Range(1) : part.piece.batch,
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
    Sink sink(held_, p, s, targets_, records_);
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
    const Range own = held_.own_queries();
    for (std::size_t p = 0; p < held_.parts.size(); ++p) {
      const Part& part = held_.parts[p];
      const auto& rows = part.from[static_cast<std::size_t>(held_.rank())];
      if (rows.empty()) continue;
      const Range heads = part.heads(held_.per_key_head());
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
        const Range heads = shape.heads(held_.per_key_head());
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

// Whether a batch entry's head has a sink that anything flows to.
bool has_sink(const Plan::Held& held, const CallFacts& facts, std::int64_t i) {
  const double sink = facts.sinks[static_cast<std::size_t>(i % held.sizes.heads)];
  return !held.sizes.queries.empty() && sink != -std::numeric_limits<double>::infinity();
}

// What this rank adds to gradients of sinks.
std::vector<std::byte> own_sink_nodes(const Plan::Held& held, const CallFacts& facts,
                                      const Given& given) {
  const backend::Sizes& sizes = held.sizes;
  std::vector<std::vector<double>> nodes(static_cast<std::size_t>(sizes.batch * sizes.heads));
  base::parallel_for(facts.workers, std::ssize(nodes), [&](std::int64_t i) {
    if (has_sink(held, facts, i))
      api::add_sink_nodes(facts.sinks[static_cast<std::size_t>(i % sizes.heads)],
                          {given.saved, given.dout, given.dlse}, i / sizes.heads, i % sizes.heads,
                          held.own_queries(), sizes.queries.count(),
                          nodes[static_cast<std::size_t>(i)]);
  });
  Writer own;
  for (const std::vector<double>& list : nodes) own.put_list(list);
  return own.take();
}

// Each head's gradient, of all batch entries and ranks.
std::vector<double> dsinks_of(Plan::Held& held, const CallFacts& facts,
                              const std::vector<std::byte>& own) {
  const backend::Sizes& sizes = held.sizes;
  const auto all = held.channel.share(own, "backward");
  std::vector<Reader> readers;
  std::vector<Range> owners;
  for (int r = 0; r < held.ranks(); ++r) {
    readers.emplace_back(all[static_cast<std::size_t>(r)]);
    owners.emplace_back(held.queries.begin(r), held.queries.end(r));
  }
  std::vector<double> gradients(facts.sinks.size());
  for (std::int64_t i = 0; i < sizes.batch * sizes.heads; ++i) {
    std::vector<std::vector<double>> lists;
    std::vector<std::span<const double>> of_rank;
    for (Reader& reader : readers) lists.push_back(reader.get_list<double>());
    for (const std::vector<double>& list : lists) of_rank.emplace_back(list);
    const double sum = has_sink(held, facts, i)
                           ? api::join_sink_nodes(owners, of_rank, sizes.queries.count())
                           : 0.0;
    gradients[static_cast<std::size_t>(i % sizes.heads)] += sum;
  }
  return gradients;
}

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
  run_backward(compiled, plan.held(), {mine, saved, dout, dlse}, call, [&] {
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
  });
  return result;
}

void backward_into(const Attention& attention, const Plan& plan, const BackwardViews& results,
                   const Inputs& mine, const Saved& saved, const ConstView& dout,
                   const std::optional<ConstView>& dlse, const Call& call) {
  const Attention::Compiled& compiled = attention.compiled();
  run_backward(compiled, plan.held(), {mine, saved, dout, dlse}, call, [&] {
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
  });
}

}  // namespace treadle::distributed
