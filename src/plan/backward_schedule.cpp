// Chunks of keys as tasks, grouped so that no two threads add to one element.
#include "plan/backward_schedule.h"

#include <algorithm>
#include <map>
#include <utility>

#include "plan/chunks.h"

namespace treadle::plan {
namespace {

// Whether one axis of all contributions to the capture is indexed with this input.
bool is_always(const ir::Joint& joint, std::string_view name, int rank, ir::Input input) {
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(rank); ++axis) {
    if (std::ranges::all_of(joint.contributions, [&](const ir::Contribution& contribution) {
          if (contribution.slot.name != name) return true;
          const auto output = static_cast<std::size_t>(contribution.index[axis]);
          const ir::Node& node = joint.graph[joint.graph.outputs()[output]];
          return node.op == ir::Op::input && node.input == input;
        }))
      return true;
  }
  return false;
}

}  // namespace

CaptureReach capture_reach(const ir::Joint& joint, std::string_view name, int rank) {
  return {.by_key = is_always(joint, name, rank, ir::Input::kv),
          .by_query = is_always(joint, name, rank, ir::Input::q),
          .by_head = is_always(joint, name, rank, ir::Input::h),
          .by_batch = is_always(joint, name, rank, ir::Input::b)};
}

BackwardSchedule schedule_backward(std::int64_t key_batch, std::int64_t key_heads,
                                   layout::Range keys, std::span<const CaptureReach> captures) {
  bool heads_apart = true, batches_apart = true;
  for (const CaptureReach& reach : captures) {
    if (!reach.by_key) continue;
    heads_apart = heads_apart && reach.by_head;
    batches_apart = batches_apart && reach.by_batch;
  }
  BackwardSchedule schedule;
  const layout::Range chunks = chunks_of(keys);
  for (std::int64_t number = chunks.begin; number < chunks.end; ++number) {
    const layout::Range all = keys_of_chunk(number);
    const layout::Range chunk{std::max(all.begin, keys.begin), std::min(all.end, keys.end)};
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<BackwardTask>> of_chunk;
    for (std::int64_t b = 0; b < key_batch; ++b) {
      for (std::int64_t h = 0; h < key_heads; ++h) {
        of_chunk[{batches_apart ? b : 0, heads_apart ? h : 0}].push_back(
            {b, h, schedule.chunks, chunk});
      }
    }
    for (auto& [apart, tasks] : of_chunk) {
      for (BackwardTask& task : tasks) task.number = schedule.tasks++;
      schedule.groups.push_back(std::move(tasks));
    }
    schedule.longest = std::max(schedule.longest, chunk.count());
    ++schedule.chunks;
  }
  return schedule;
}

}  // namespace treadle::plan
