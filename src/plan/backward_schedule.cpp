// Chunks or classes of keys as tasks, grouped so that no two threads add to one element.
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

// The keys that there are of some chunks.
layout::Range keys_in(layout::Range chunks, layout::Range keys) {
  const layout::Range all = keys_of_chunks(chunks);
  return {std::max(all.begin, keys.begin), std::min(all.end, keys.end)};
}

// Neighbouring classes that one thread takes: their rows share pages, and lines that the hardware
// fetches along. As long as there are enough groups for many threads.
constexpr std::int64_t most_in_group = 8, wanted_groups = 128;

// How many chunks a task of a class has: all, unless its sums would leave the cache, or there would
// be too few tasks for several threads.
std::int64_t chunks_of_class(layout::Range keys, const KeyHeads& of, std::int64_t modulus) {
  constexpr std::int64_t most_keys = 2048, fewest_tasks = 32;
  const std::int64_t chunks = chunks_of(keys).count();
  const std::int64_t of_chunk = (longest_chunk(keys) + modulus - 1) / modulus;
  const std::int64_t pieces =
      std::max<std::int64_t>(1, fewest_tasks / (of.batch * of.heads * modulus));
  return std::clamp<std::int64_t>(std::min(most_keys / of_chunk, chunks / pieces), 1, chunks);
}

}  // namespace

CaptureReach capture_reach(const ir::Joint& joint, std::string_view name, int rank) {
  return {.by_key = is_always(joint, name, rank, ir::Input::kv),
          .by_query = is_always(joint, name, rank, ir::Input::q),
          .by_head = is_always(joint, name, rank, ir::Input::h),
          .by_batch = is_always(joint, name, rank, ir::Input::b)};
}

layout::Range BackwardTask::keys_of(std::int64_t chunk, layout::Range all_keys) const {
  const std::int64_t number = chunks_of(all_keys).begin + chunk;
  return keys_in({number, number + 1}, all_keys);
}

ChunkWork chunk_work(const layout::Layout& layout) {
  const std::int64_t tiles = layout.tiles().count();
  ChunkWork work;
  for (std::int64_t b = 0; b < (layout.per_batch() ? layout.extent().batch : 1); ++b) {
    for (std::int64_t h = 0; h < (layout.per_head() ? layout.extent().heads : 1); ++h) {
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        const auto runs = layout.runs(b, h, tile);
        if (runs.empty()) continue;
        work.looked_at += chunks_of({runs.front().begin(), runs.back().end()}).count();
        for (const layout::Run& run : runs) work.keys += run.length();
      }
    }
  }
  return work;
}

std::int64_t chunks_per_task(const ChunkWork& work, layout::Range keys) {
  constexpr std::int64_t wanted = 64;  // keys of a tile in a task
  if (work.keys == 0) return 1;
  const std::int64_t chunks = chunks_of(keys).count();
  std::int64_t most = wanted * work.looked_at / work.keys;
  most = std::min(most, most_keys_of_chunks / longest_chunk(keys));
  // Enough tasks for several threads.
  return std::clamp<std::int64_t>(std::min(most, chunks / 2), 1, most_chunks_per_task);
}

std::int64_t chunks_per_task(const layout::Layout& layout) {
  return chunks_per_task(chunk_work(layout), layout.extent().keys);
}

BackwardSchedule schedule_chunks(const layout::Layout& layout, const KeyHeads& of,
                                 std::span<const CaptureReach> captures, std::int64_t per_task) {
  bool heads_apart = true, batches_apart = true;
  for (const CaptureReach& reach : captures) {
    if (!reach.by_key) continue;
    heads_apart = heads_apart && reach.by_head;
    batches_apart = batches_apart && reach.by_batch;
  }
  BackwardSchedule schedule;
  const layout::Range keys = layout.extent().keys;
  const layout::Range chunks = chunks_of(keys);
  schedule.chunks = chunks.count();
  for (std::int64_t first = chunks.begin; first < chunks.end; first += per_task) {
    const layout::Range some{first, std::min(first + per_task, chunks.end)};
    const layout::Range own = keys_in(some, keys);
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<BackwardTask>> groups;
    for (std::int64_t b = 0; b < of.batch; ++b) {
      for (std::int64_t h = 0; h < of.heads; ++h) {
        groups[{batches_apart ? b : 0, heads_apart ? h : 0}].push_back(
            {.key_batch = b,
             .key_head = h,
             .chunks = {some.begin - chunks.begin, some.end - chunks.begin},
             .keys = own,
             .own = layout::Run(own.begin, own.end, false),
             .tiles = layout.tiles().count()});
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

BackwardSchedule schedule_classes(const layout::Layout& layout, const KeyHeads& of,
                                  const KeyClasses& classes) {
  BackwardSchedule schedule;
  const layout::Range keys = layout.extent().keys;
  const layout::Range chunks = chunks_of(keys);
  schedule.chunks = chunks.count();
  const std::int64_t per_task = chunks_of_class(keys, of, classes.modulus);
  schedule.completes_dq = per_task >= chunks.count();
  const auto count = static_cast<std::int64_t>(classes.classes.size());
  const std::int64_t all = of.batch * of.heads * count * ((chunks.count() - 1) / per_task + 1);
  const std::int64_t group = std::clamp<std::int64_t>(all / wanted_groups, 1, most_in_group);
  for (std::int64_t first = chunks.begin; first < chunks.end; first += per_task) {
    const layout::Range some{first, std::min(first + per_task, chunks.end)};
    for (std::int64_t at = 0; at < of.batch * of.heads * count; ++at) {
      const KeyClass& one = classes.classes[static_cast<std::size_t>(at % count)];
      const layout::Range span = keys_in(some, keys);
      const BackwardTask task{.key_batch = at / count / of.heads,
                              .key_head = at / count % of.heads,
                              .chunks = {some.begin - chunks.begin, some.end - chunks.begin},
                              .keys = span,
                              .own = keys_of_residue(span, classes.modulus, one.key_residue),
                              .tiles = one.tiles,
                              .number = schedule.tasks++};
      if (at % count % group == 0) schedule.groups.emplace_back();
      schedule.groups.back().push_back(task);
      schedule.longest = std::max(schedule.longest, task.own.length());
    }
  }
  return schedule;
}

BackwardSchedule schedule_backward(const layout::Layout& layout, const KeyHeads& of,
                                   std::span<const CaptureReach> captures) {
  if (captures.empty())
    if (const auto classes = key_classes(layout)) return schedule_classes(layout, of, *classes);
  return schedule_chunks(layout, of, captures, chunks_per_task(layout));
}

}  // namespace treadle::plan
