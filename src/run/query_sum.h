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
  // The first key of the task.
  void clear(std::int64_t first_key);

  void start_block(std::span<const Segment> segments);
  void add(const LazyKernel<plan::ReduceArgs>& kernel, const plan::ReduceSpec& spec,
           const Part& part);
  void end_block(bool last);
  void close_leaf() { tree_.close_leaf(); }
  F* finish() { return tree_.finish(); }

  [[nodiscard]] std::int64_t length() const { return length_; }

 private:
  // Calls f(neighbouring keys of the block, the place of the first).
  template <class Each>
  void for_each_stretch(const Each& f) const {
    for (const Segment& segment : segments_) {
      for (std::int64_t i = 0; i < segment.keys.count(); ++i)
        f(segment.keys.piece(i), segment.place + i * segment.keys.width());
    }
  }
  [[nodiscard]] F* leaf(std::int64_t key) const {
    return tree_.leaf() + (key - first_key_) * length_;
  }

  SumTree<F> tree_;    // [keys + spare][length]
  F* own_ = nullptr;   // [block_rows][length]: of a block whose keys are not contiguous
  F* rows_ = nullptr;  // of the current block
  std::span<const Segment> segments_;
  std::int64_t length_ = 0, first_key_ = 0;
};

}  // namespace treadle::run
