// BackwardShare: a part of a backward call whose other queries are elsewhere.
//
// The layout has some leaves of the queries, whole ones (layout::Tiles::some). dQ of their rows is
// complete; dK, dV and gradients of captures are sums over all leaves, so what these add to them is
// handed over as nodes of the tree, which the owner of a sum joins with those of others
// (plan/tree_parts.h, run/sum_tree.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "layout/range.h"
#include "plan/backward_schedule.h"
#include "plan/tree_parts.h"

namespace treadle::run {

// Takes what tasks hand over, from several threads, each piece once. Numbers are of the compute
// type and not scaled.
class ShareSink {
 public:
  virtual ~ShareSink() = default;

  enum class Sum : std::uint8_t { dk, dv };
  // Rows of neighbouring keys of a piece, so many elements apart.
  virtual void put(Sum sum, const plan::BackwardTask& task, std::size_t piece, layout::Range keys,
                   const void* rows, std::int64_t length) = 0;
  // Elements of the gradient of a capture, which is known by its number; those that are not handed
  // over are zero. Sums that need no tree have no piece: they are what the task adds (whole_task).
  static constexpr std::size_t whole_task = static_cast<std::size_t>(-1);
  virtual void put(std::size_t capture, std::int64_t task, std::size_t piece,
                   layout::Range elements, const void* values) = 0;
};

struct BackwardShare {
  // Of the whole tree, and what happens when one of the layout's closes: those of all batch entries that
  // share keys, one entry after the other.
  std::int64_t all_leaves = 0;
  const plan::TreeParts& parts;
  std::int64_t chunks_per_task = 1;  // of the whole layout
  bool adds_up = false;              // dQ is of the compute type, for others will be added
  bool scales = true;                // dQ with the call's scale; else whoever adds it up does
  ShareSink* sink = nullptr;
};

}  // namespace treadle::run
