// TaskGradients: what one task contributes to the gradients of captures.
//
// A kernel leaves values and offsets for the pairs of a tile and a run of keys. Additions to an
// element have a fixed order, whatever blocks the keys come in: within a group of tiles key by key,
// for a key tile by tile; groups make leaves, which join in a tree (run/sum_tree.h); tasks follow
// one another. Where that is the same they are added right away:
//
//   bias[q, kv]   one pair of a head each          when the kernel is done
//   bias[q]       an offset without the key        summed in the query's lane, added after the group
//   other         table[q - kv], bias[kv], ...     when all tiles of a group are done with the block
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "run/backward.h"
#include "run/backward_share.h"
#include "run/blocks.h"
#include "run/contributions.h"
#include "run/ordered_sums.h"
#include "run/sum_tree.h"

namespace treadle::run {

template <class F>
class TaskGradients {
 public:
  // `ordered` is BackwardShared::captured.
  TaskGradients(const BackwardKernels& kernels, const BackwardProblem& problem,
                const std::vector<std::unique_ptr<OrderedSums<F>>>& ordered)
      : kernels_(kernels),
        captured_(problem.captured),
        ordered_(ordered),
        tiles_(plan::tiles_per_backward_group(kernels.plan)),
        one_batch_(problem.keys.batch() > 1 || problem.q.size(0) == 1) {}

  // Room for the contributions of a group's block, and for sums of the task's own.
  void carve(Carver& carver, std::int64_t leaves);
  void clear();

  void start_group();
  void start_block();
  // Tells a kernel where to leave the contributions of the group's tile `tile` to these places.
  void set(plan::BackwardKernelArgs& args, std::size_t tile, const BlockRun& run) const;
  // The kernel has left them. This and the next ones return false if there is a NaN: each looks at
  // what it is the last to see.
  [[nodiscard]] bool take(std::size_t tile, const BlockRun& run, std::int64_t queries);
  void add_block(std::int64_t keys);
  [[nodiscard]] bool add_group();
  void close_leaf();
  // Of a part of the queries: hands over nodes of the task's trees.
  void close_leaf(const plan::LeafEnd& end, std::int64_t task, ShareSink& sink);
  // All of the task's contributions are added.
  [[nodiscard]] bool deliver(std::int64_t task);
  // Of a part of the queries: hands over the task's sums that are no trees.
  [[nodiscard]] bool hand_over(std::int64_t task, ShareSink& sink);

  // The room for the contributions of a block alone.
  static std::int64_t bytes_of_block(const plan::TilePlan& plan, std::int64_t contributions);

 private:
  // Of one capture: leaves that never meet add to one sum, others make a tree of it.
  struct Sum {
    F* sum = nullptr;
    SumTree<F> tree;
    bool is_tree = false;
  };
  // What a tile left in the current block, by place, and how its queries lie.
  struct Part {
    Contributions<F> given;
    QueryOffsets queries;
  };
  static constexpr std::int64_t page = 64;  // elements that a tree touches at once

  TaskGradients(const BackwardKernels& kernels, const std::vector<CapturedSum>& captured,
                const std::vector<std::unique_ptr<OrderedSums<F>>>& ordered)
      : kernels_(kernels),
        captured_(captured),
        ordered_(ordered),
        tiles_(plan::tiles_per_backward_group(kernels.plan)) {}

  [[nodiscard]] std::int64_t contributions() const {
    return static_cast<std::int64_t>(kernels_.separable.size());
  }
  // Elements of a tile's values; offsets of a separable contribution are left before `kept()`, and
  // kept from there on: those of queries, then those of keys.
  [[nodiscard]] std::int64_t kept() const {
    const std::int64_t width = kernels_.plan.width(), keys = kernels_.plan.key_block;
    return keys * width + width + keys;
  }
  [[nodiscard]] std::int64_t room_of_tile() const {
    return kept() + kernels_.plan.width() + kernels_.plan.key_block;
  }
  [[nodiscard]] std::int64_t place(std::size_t contribution, std::size_t tile) const {
    return static_cast<std::int64_t>(contribution) * tiles_ + static_cast<std::int64_t>(tile);
  }
  [[nodiscard]] std::int64_t first(std::size_t contribution, std::size_t tile) const {
    return place(contribution, tile) * room_of_tile();
  }
  [[nodiscard]] F* lanes(std::size_t contribution, std::size_t tile) const {
    return lanes_ + place(contribution, tile) * kernels_.plan.width();
  }
  [[nodiscard]] Contributions<F> given(std::size_t contribution, std::size_t tile) const;
  // Leaves never meet at an element of this capture.
  [[nodiscard]] bool leaves_apart(const CapturedSum& captured) const {
    return captured.reach.by_query && (one_batch_ || captured.reach.by_batch);
  }
  // No two pairs of a tile do.
  [[nodiscard]] bool pairs_apart(const CapturedSum& captured, std::size_t contribution) const {
    return leaves_apart(captured) && captured.reach.by_key && kernels_.separable[contribution];
  }
  bool add_lanes(const CapturedSum& captured, Sum& sum, std::size_t contribution, std::size_t tile);

  const BackwardKernels& kernels_;
  const std::vector<CapturedSum>& captured_;
  const std::vector<std::unique_ptr<OrderedSums<F>>>& ordered_;
  std::int64_t tiles_;     // of a group
  bool one_batch_ = true;  // no two batches of queries have the same keys
  F* values_ = nullptr;    // [contributions][tiles][room_of_tile()]
  std::int64_t* offsets_ = nullptr;
  F* lanes_ = nullptr;               // [contributions][tiles][width]: sums of a group
  Part* parts_ = nullptr;            // [contributions][tiles]
  std::uint8_t* taken_ = nullptr;    // [tiles][key_block]: places that a tile left something for
  std::int64_t* queries_ = nullptr;  // [tiles]; 0: it left nothing in this group
  Sum* sums_ = nullptr;              // by capture
};

}  // namespace treadle::run
