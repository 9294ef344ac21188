// A BackwardSchedule: the tasks of a backward call, in groups that one thread runs in order.
//
// A task owns dK and dV of a chunk of keys of one key head, or of a few; its part of every dQ is added in the
// order of chunks, whenever it arrives. Gradients of captures are added task by task, or, where
// tasks never meet at one element, by each task itself.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ir/joint.h"
#include "layout/layout.h"

namespace treadle::plan {

// One index of every contribution to a capture, the same one, is the key (the query, the head, the
// batch): then different keys (queries, heads, batches) never add to the same element.
struct CaptureReach {
  bool by_key = false, by_query = false, by_head = false, by_batch = false;
};

// Of the capture of that name and rank.
CaptureReach capture_reach(const ir::Joint& joint, std::string_view name, int rank);

struct BackwardTask {
  std::int64_t key_batch = 0, key_head = 0;
  layout::Range chunks;     // 0 is the first that has keys
  layout::Range keys;       // positions of the chunks
  std::int64_t number = 0;  // tasks add to captures in this order, in which they also begin

  // The positions of one of the chunks.
  [[nodiscard]] layout::Range keys_of(std::int64_t chunk, layout::Range all_keys) const;
};

struct BackwardSchedule {
  // Begun in this order. Tasks that may add to the same element of a capture are in one group.
  std::vector<std::vector<BackwardTask>> groups;
  std::int64_t chunks = 0, tasks = 0;
  std::int64_t longest = 0;  // keys of a task
};

BackwardSchedule schedule_backward(std::int64_t key_batch, std::int64_t key_heads,
                                   layout::Range keys, std::span<const CaptureReach> captures,
                                   std::int64_t chunks_per_task = 1);

// How many chunks a task of this layout should own. Where tiles see few keys of a chunk, loading
// their queries for each chunk would take longer than the products. It follows from the layout
// alone, as sums of captures' gradients do.
std::int64_t chunks_per_task(const layout::Layout& layout);
// At most so many, with at most so many keys together.
inline constexpr std::int64_t most_chunks_per_task = 8, most_keys_of_chunks = 8192;

}  // namespace treadle::plan
