// SumSink: what a slice of a part adds to dK, dV and gradients of captures, put where it belongs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "distributed/capture_records.h"
#include "distributed/held_plan.h"
#include "run/backward_share.h"

namespace treadle::distributed {

// Where rows of dK and dV for their owners begin.
struct SumTargets {
  std::vector<std::byte*> of;  // by owner
};

// What a slice hands over, put where it belongs.
class SumSink final : public run::ShareSink {
 public:
  SumSink(const Plan::Held& held, std::size_t part, std::size_t slice, const SumTargets& targets,
          CaptureRecords& records)
      : held_(held), part_(part), slice_(slice), targets_(targets), records_(records) {}

  void set_tasks(std::vector<std::int64_t> numbers) { tasks_ = std::move(numbers); }

  void put(Sum sum, const plan::BackwardTask& task, std::size_t piece, layout::Range keys,
           const void* rows, std::int64_t length) override {
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

  void put(std::size_t capture, std::int64_t task, std::size_t piece, layout::Range elements,
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

}  // namespace treadle::distributed
