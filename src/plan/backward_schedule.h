// A BackwardSchedule: the tasks of a backward call, in groups that one thread runs in order.
//
// A task owns dK and dV of a chunk of keys of one key head, or of a few; its part of every dQ is added in the
// order of chunks, whenever it arrives. Gradients of captures are added task by task, or, where
// tasks never meet at one element, by each task itself.
//
// Where residue classes of queries have keys of their own (plan/key_classes.h), a task owns those of
// a class instead: they are few and, counted through, neighbours, and only the tiles of the class
// look at them. All bits are the same. Gradients of captures are added in the order of tasks, so
// calls that ask for some have tasks of chunks.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ir/joint.h"
#include "layout/layout.h"
#include "plan/key_classes.h"

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
  layout::Range chunks;          // 0 is the first that has keys
  layout::Range keys;            // positions of the chunks
  layout::Run own{0, 0, false};  // those of them that it owns: all, or those of a residue
  layout::Range tiles;           // no others look at them
  std::int64_t number = 0;       // tasks add to captures in this order, in which they also begin

  // The positions of one of the chunks.
  [[nodiscard]] layout::Range keys_of(std::int64_t chunk, layout::Range all_keys) const;
};

struct BackwardSchedule {
  // Begun in this order. Tasks that may add to the same element of a capture are in one group.
  std::vector<std::vector<BackwardTask>> groups;
  std::int64_t chunks = 0, tasks = 0;
  std::int64_t longest = 0;  // keys that a task owns
  // A task has all keys that its tiles look at, so their dQ is complete within it.
  bool completes_dq = false;
};

struct KeyHeads {
  std::int64_t batch = 1, heads = 1;
};

// By classes where that is possible, else by chunks.
BackwardSchedule schedule_backward(const layout::Layout& layout, const KeyHeads& of,
                                   std::span<const CaptureReach> captures);

// With so many chunks in a task.
BackwardSchedule schedule_chunks(const layout::Layout& layout, const KeyHeads& of,
                                 std::span<const CaptureReach> captures, std::int64_t per_task);
BackwardSchedule schedule_classes(const layout::Layout& layout, const KeyHeads& of,
                                  const KeyClasses& classes);

// How many chunks a task of this layout should own. Where tiles see few keys of a chunk, loading
// their queries for each chunk would take longer than the products. It follows from the layout
// alone, as sums of captures' gradients do.
std::int64_t chunks_per_task(const layout::Layout& layout);
// The same from counts, which parts of a layout have and whoever adds them up knows.
struct ChunkWork {
  std::int64_t keys = 0, looked_at = 0;  // of all tiles; chunks from the first to the last of each

  bool operator==(const ChunkWork&) const = default;
};
ChunkWork chunk_work(const layout::Layout& layout);
std::int64_t chunks_per_task(const ChunkWork& work, layout::Range keys);
// At most so many, with at most so many keys together.
inline constexpr std::int64_t most_chunks_per_task = 8, most_keys_of_chunks = 8192;

}  // namespace treadle::plan
