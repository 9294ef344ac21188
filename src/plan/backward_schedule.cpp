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

layout::Range BackwardTask::keys_of(std::int64_t chunk, layout::Range all_keys) const {
  const layout::Range all = keys_of_chunk(chunks_of(all_keys).begin + chunk);
  return {std::max(all.begin, all_keys.begin), std::min(all.end, all_keys.end)};
}

std::int64_t chunks_per_task(const layout::Layout& layout) {
  constexpr std::int64_t wanted = 64;  // keys of a tile in a task
  const std::int64_t tiles = layout.tiles().count();
  const std::int64_t chunks = chunks_of(layout.extent().keys).count();
  std::int64_t keys = 0, looked_at = 0;
  for (std::int64_t b = 0; b < (layout.per_batch() ? layout.extent().batch : 1); ++b) {
    for (std::int64_t h = 0; h < (layout.per_head() ? layout.extent().heads : 1); ++h) {
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        const auto runs = layout.runs(b, h, tile);
        if (runs.empty()) continue;
        looked_at += chunks_of({runs.front().begin(), runs.back().end()}).count();
        for (const layout::Run& run : runs) keys += run.length();
      }
    }
  }
  if (keys == 0) return 1;
  std::int64_t most = wanted * looked_at / keys;
  most = std::min(most, most_keys_of_chunks / longest_chunk(layout.extent().keys));
  // Enough tasks for several threads.
  return std::clamp<std::int64_t>(std::min(most, chunks / 2), 1, most_chunks_per_task);
}

BackwardSchedule schedule_backward(std::int64_t key_batch, std::int64_t key_heads,
                                   layout::Range keys, std::span<const CaptureReach> captures,
                                   std::int64_t chunks_per_task) {
  bool heads_apart = true, batches_apart = true;
  for (const CaptureReach& reach : captures) {
    if (!reach.by_key) continue;
    heads_apart = heads_apart && reach.by_head;
    batches_apart = batches_apart && reach.by_batch;
  }
  BackwardSchedule schedule;
  const layout::Range chunks = chunks_of(keys);
  schedule.chunks = chunks.count();
  for (std::int64_t first = chunks.begin; first < chunks.end; first += chunks_per_task) {
    const layout::Range some{first, std::min(first + chunks_per_task, chunks.end)};
    const layout::Range all = keys_of_chunks(some);
    const layout::Range own{std::max(all.begin, keys.begin), std::min(all.end, keys.end)};
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<BackwardTask>> groups;
    for (std::int64_t b = 0; b < key_batch; ++b) {
      for (std::int64_t h = 0; h < key_heads; ++h) {
        groups[{batches_apart ? b : 0, heads_apart ? h : 0}].push_back(
            {b, h, {some.begin - chunks.begin, some.end - chunks.begin}, own});
      }
    }
    for (auto& [apart, tasks] : groups) {
      for (BackwardTask& task : tasks) task.number = schedule.tasks++;
      schedule.groups.push_back(std::move(tasks));
    }
    schedule.longest = std::max(schedule.longest, own.count());
  }
  return schedule;
}

}  // namespace treadle::plan
