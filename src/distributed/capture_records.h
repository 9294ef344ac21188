// Gradients of captures: sums over all pairs, which all ranks get.
//
// What parts hand over (run/backward_share.h) is kept as records. Every rank owns a slice of each gradient: it gets the
// records of its slice, adds them in the order of one machine's call, and tells the sums to all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "distributed/channel.h"
#include "distributed/part.h"
#include "layout/range.h"
#include "plan/backward_schedule.h"
#include "plan/tree_parts.h"
#include "treadle/distributed.h"
#include "treadle/tensor.h"

namespace treadle::distributed {

// Where values belong in the order of sums. Sums that need no tree have level -1.
struct RecordPlace {
  std::int64_t capture = 0, pass = 0, task = 0;  // of all tasks of the call
  std::int64_t level = -1, first_leaf = 0, end_leaf = 0, leaves = 0;
};

class CaptureRecords {
 public:
  // Of gradients with so many elements each.
  CaptureRecords(std::vector<std::int64_t> counts, DType compute, int ranks);

  // Any thread may add.
  void add(const RecordPlace& place, layout::Range elements, const void* values);
  void clear();
  // Sums of all ranks' records: of the compute type, one for each gradient. All ranks call it.
  std::vector<Tensor> join(Channel& channel, std::string_view call, Sums sums) const;

 private:
  [[nodiscard]] layout::Range slice_of(std::size_t capture, int rank) const;

  std::vector<std::int64_t> counts_;
  DType compute_;
  int ranks_;
  std::mutex mutex_;
  std::vector<std::vector<std::byte>> to_;  // by owner
};

// Numbers of a part's tasks, local ones, among all tasks of the call.
std::vector<std::int64_t> task_numbers(const layout::Layout& layout, const backend::Sizes& all,
                                       const Part& part,
                                       std::span<const plan::CaptureReach> reaches,
                                       std::int64_t chunks_per_task);

}  // namespace treadle::distributed
