// Rows of a block: the leaf's own where keys are neighbours in it, else collected and put back.
#include "run/query_sum.h"

#include <algorithm>

namespace treadle::run {

template <class F>
void QuerySum<F>::carve(Carver& carver, const plan::TilePlan& plan, std::int64_t dim,
                        std::int64_t keys, std::int64_t leaves) {
  length_ = padded(plan, dim);
  const std::int64_t rows = block_rows(plan);
  // Kernels take whole steps of rows, and add zeros to those behind the last key.
  tree_.carve(carver, keys + rows - plan.key_block, length_, leaves);
  own_ = carver.take<F>(rows * length_);
}

template <class F>
void QuerySum<F>::clear(const layout::Run& own) {
  own_keys_ = own;
  tree_.clear();
}

template <class F>
void QuerySum<F>::start_block(std::span<const Segment> segments) {
  segments_ = segments;
  for_each_stretch([&](layout::Range rows, std::int64_t) { tree_.touch(rows.begin, rows.end); });
  rows_ = tree_.leaf() + own_keys_.keys_before(segments.front().keys.begin()) * length_;
  if (segments.size() == 1 && is_stretch(segments.front().keys)) return;
  for_each_stretch([&](layout::Range rows, std::int64_t place) {
    std::copy_n(tree_.leaf() + rows.begin * length_, rows.count() * length_,
                own_ + place * length_);
  });
  rows_ = own_;
}

template <class F>
void QuerySum<F>::add(const LazyKernel<plan::ReduceArgs>& kernel, const plan::ReduceSpec& spec,
                      const Part& part) {
  if (part.begin >= part.end) return;
  const std::int64_t step = spec.rows_at_once();
  const std::int64_t begin = part.begin / step * step;
  kernel({.a = part.a + begin * spec.width,
          .b = part.b,
          .c = rows_ + begin * length_,
          .rows = (part.end - begin + step - 1) / step * step,
          .tiles = part.tiles});
}

template <class F>
void QuerySum<F>::end_block(bool last) {
  for_each_stretch([&](layout::Range rows, std::int64_t place) {
    if (rows_ == own_)
      std::copy_n(own_ + place * length_, rows.count() * length_,
                  tree_.leaf() + rows.begin * length_);
    // While they are in the cache.
    if (last) tree_.close_rows(rows.begin, rows.end);
  });
}

template class QuerySum<float>;
template class QuerySum<double>;

}  // namespace treadle::run
