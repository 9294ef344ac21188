// PassWork: what a pass over the queries has to do, leaf by leaf. All that the planner knows of a mask.
//
//   PassWork work = work_of(layout, tiles_per_leaf, ...);      // of the leaves that were laid out here
//   work.append(of_later_leaves);                              // and of those that others laid out
//
// A leaf is what is never divided along the queries, since sums over queries are made of leaves
// (run/sum_tree.h): so many neighbouring tiles of the pass. It may be divided by key heads, and by
// chunks of keys (plan/chunks.h).
#pragma once

#include <cstdint>
#include <vector>

#include "layout/layout.h"

namespace treadle::distributed {

struct PassWork {
  std::int64_t leaves = 0, chunks = 0;           // of all queries that it has, and of all keys
  std::int64_t batch_lists = 1, head_lists = 1;  // 1, or as many as batch entries; 1, or key heads
  std::vector<float>
      pairs;  // [leaves][batch_lists][head_lists][chunks]: looked at, of all heads of a key head
  // [leaves][batch_lists][head_lists]: keys that are looked at, ascending; small gaps are closed so that there are few.
  std::vector<std::vector<layout::Range>> keys;
};

}  // namespace treadle::distributed
