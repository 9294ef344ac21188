// QuerySum: dK or dV of the keys of a task, summed over queries block by block.
//
//   sum.start_block(block.segments);             // which keys are at which places
//   sum.add(kernel, spec, part);                 // dV += P^T dO, over the tiles of a group
//   sum.end_block(last);                         // whether the leaf has no more to add to these keys
//   sum.close_leaf();
//   float* rows = sum.finish();                  // [keys][length], length padded to whole vectors
//
// Within a leaf of the queries every element is one chain of additions, so it does not show how keys
// were put into blocks; leaves join in a tree (run/sum_tree.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "plan/reduce_kernel.h"
#include "run/blocks.h"
#include "run/lazy_kernel.h"
#include "run/sum_tree.h"

namespace treadle::run {

template <class F>
class QuerySum {
 public:
  // What some tiles add to places begin .. end of the block.
  struct Part {
    const F* a = nullptr;  // [tiles][block_rows][width]: P or dS; zero where a tile does not look
    const F* b = nullptr;  // [tiles][width][length]: dO or Q
    std::int64_t tiles = 0;
    std::int64_t begin = 0, end = 0;
  };

  // For tasks of at most so many keys and leaves, and rows of `dim` elements.
  void carve(Carver& carver, const plan::TilePlan& plan, std::int64_t dim, std::int64_t keys,
             std::int64_t leaves);
  // The keys of the task.
  void clear(const layout::Run& own);

  void start_block(std::span<const Segment> segments);
  void add(const LazyKernel<plan::ReduceArgs>& kernel, const plan::ReduceSpec& spec,
           const Part& part);
  void end_block(bool last);
  void close_leaf() { tree_.close_leaf(); }
  // Leaves in which nobody looks at the task's keys.
  void skip(std::int64_t leaves) { tree_.skip(leaves); }
  F* finish() { return tree_.finish(); }
  // Closes a leaf of a part of the sum: SumTree. give(number of the piece, keys, rows).
  template <class Give>
  void close_leaf(const plan::LeafEnd& end, const Give& give) {
    tree_.close_leaf(end,
                     [&](std::size_t piece, std::int64_t begin, std::int64_t past, const F* rows) {
                       // Rows behind the last key are there for kernels.
                       past = std::min(past, own_keys_.length());
                       const std::int64_t first = own_keys_.begin();
                       if (begin < past)
                         give(piece, layout::Range{first + begin, first + past}, rows);
                     });
  }

  [[nodiscard]] std::int64_t length() const { return length_; }

 private:
  // Calls f(rows of neighbours among the task's keys, the place of the first in the block).
  template <class Each>
  void for_each_stretch(const Each& f) const {
    for (const Segment& segment : segments_) {
      const layout::Run& keys = segment.keys;
      if (is_stretch(keys)) {
        f(rows_of(keys.begin(), keys.length()), segment.place);
        continue;
      }
      for (std::int64_t i = 0; i < keys.count(); ++i)
        f(rows_of(keys.piece(i).begin, keys.width()), segment.place + i * keys.width());
    }
  }
  // Whether the keys are neighbours among the task's own.
  [[nodiscard]] bool is_stretch(const layout::Run& keys) const {
    return keys.count() == 1 || (own_keys_.count() > 1 && keys.step() == own_keys_.step());
  }
  [[nodiscard]] layout::Range rows_of(std::int64_t key, std::int64_t count) const {
    const std::int64_t first = own_keys_.keys_before(key);
    return {first, first + count};
  }

  SumTree<F> tree_;    // [keys + spare][length], by their number among the task's
  F* own_ = nullptr;   // [block_rows][length]: of a block whose keys are not neighbours there
  F* rows_ = nullptr;  // of the current block
  std::span<const Segment> segments_;
  layout::Run own_keys_{0, 0, false};
  std::int64_t length_ = 0;
};

}  // namespace treadle::run
