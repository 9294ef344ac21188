// A task's contributions to gradients of captures: carved, taken from kernels, added, delivered.
// Read take() and add_block() first.
#include "run/task_gradients.h"

#include <algorithm>

#include "run/nonfinite.h"

namespace treadle::run {

template <class F>
void TaskGradients<F>::carve(Carver& carver, std::int64_t leaves) {
  values_ = carver.take<F>(contributions() * tiles_ * room_of_tile());
  offsets_ = carver.take<std::int64_t>(contributions() * tiles_ * room_of_tile());
  lanes_ = carver.take<F>(contributions() * tiles_ * kernels_.plan.width());
  parts_ = carver.take<Part>(contributions() * tiles_);
  taken_ = carver.take<std::uint8_t>(tiles_ * kernels_.plan.key_block);
  queries_ = carver.take<std::int64_t>(tiles_);
  sums_ = carver.take<Sum>(static_cast<std::int64_t>(captured_.size()));
  for (std::size_t i = 0; i < captured_.size(); ++i) {
    const CapturedSum& captured = captured_[i];
    Sum sum{.is_tree = !leaves_apart(captured)};
    if (sum.is_tree) {
      sum.tree.carve(carver, (captured.count + page - 1) / page, page, leaves);
    } else {
      sum.sum =
          ordered_[i] == nullptr ? static_cast<F*>(captured.sum) : carver.take<F>(captured.count);
    }
    if (sums_ != nullptr) std::construct_at(sums_ + i, sum);  // not while measuring
  }
}

template <class F>
std::int64_t TaskGradients<F>::bytes_of_block(const plan::TilePlan& plan,
                                              std::int64_t contributions) {
  BackwardKernels kernels;
  kernels.plan = plan;
  kernels.separable.resize(static_cast<std::size_t>(contributions));
  return measured([&](Carver& carver) { TaskGradients<F>(kernels, {}, {}).carve(carver, 0); });
}

template <class F>
void TaskGradients<F>::clear() {
  for (std::size_t i = 0; i < captured_.size(); ++i) {
    if (sums_[i].is_tree) {
      sums_[i].tree.clear();
    } else if (ordered_[i] != nullptr) {
      std::fill_n(sums_[i].sum, captured_[i].count, F{0});
    }
  }
}

template <class F>
void TaskGradients<F>::start_group() {
  std::fill_n(lanes_, contributions() * tiles_ * kernels_.plan.width(), F{0});
  std::fill_n(queries_, tiles_, std::int64_t{0});
}

template <class F>
void TaskGradients<F>::start_block() {
  if (captured_.empty()) return;
  std::fill_n(taken_, tiles_ * kernels_.plan.key_block, std::uint8_t{0});
}

template <class F>
void TaskGradients<F>::set(plan::BackwardKernelArgs& args, std::size_t tile,
                           const BlockRun& run) const {
  const std::int64_t at = first(0, tile) + run.begin * kernels_.plan.width();
  args.contribution_values = values_ + at;
  args.contribution_offsets = offsets_ + at;
  args.contribution_stride = tiles_ * room_of_tile();
}

template <class F>
Contributions<F> TaskGradients<F>::given(std::size_t contribution, std::size_t tile) const {
  const std::int64_t at = first(contribution, tile);
  const std::int64_t* kept_offsets = offsets_ + at + kept();
  const bool separable = kernels_.separable[contribution];
  return {.values = values_ + at,
          .offsets = separable ? nullptr : offsets_ + at,
          .by_query = kept_offsets,
          .by_key = kept_offsets + kernels_.plan.width(),
          .queries = queries_[tile],
          .width = kernels_.plan.width()};
}

template <class F>
bool TaskGradients<F>::take(std::size_t tile, const BlockRun& run, std::int64_t queries) {
  if (captured_.empty()) return true;
  const std::int64_t width = kernels_.plan.width();
  queries_[tile] = queries;
  bool clean = true;
  for (std::size_t i = 0; i < captured_.size(); ++i) {
    for (const std::size_t c : captured_[i].contributions) {
      if (kernels_.separable[c]) {
        const std::int64_t* left = offsets_ + first(c, tile) + run.begin * width;
        std::int64_t* kept_offsets = offsets_ + first(c, tile) + kept();
        std::copy_n(left, width, kept_offsets);
        std::copy_n(left + width, run.end - run.begin, kept_offsets + width + run.begin);
      }
      const Contributions<F> all = given(c, tile);
      if (!kernels_.keyed[c]) {
        F* sums = lanes(c, tile);
        for (std::int64_t k = run.begin; k < run.end; ++k)
          for (std::int64_t q = 0; q < queries; ++q) sums[q] += all.values[k * width + q];
      } else if (pairs_apart(captured_[i], c)) {
        add_apart(all, query_offsets(all), run.begin, run.end, sums_[i].sum, captured_[i].count);
      } else {
        parts_[place(c, tile)] = {all, query_offsets(all)};
      }
      const bool in_place = !sums_[i].is_tree && ordered_[i] == nullptr;
      for (std::int64_t k = run.begin; in_place && k < run.end; ++k)
        clean = clean && !has_nan(all.values + k * width, queries);
    }
  }
  std::fill(taken_ + static_cast<std::int64_t>(tile) * kernels_.plan.key_block + run.begin,
            taken_ + static_cast<std::int64_t>(tile) * kernels_.plan.key_block + run.end,
            std::uint8_t{1});
  return clean;
}

template <class F>
void TaskGradients<F>::add_block(std::int64_t keys) {
  for (std::size_t i = 0; i < captured_.size(); ++i) {
    const CapturedSum& captured = captured_[i];
    const auto waits = [&](std::size_t c) {
      return kernels_.keyed[c] && !pairs_apart(captured, c);
    };
    if (std::ranges::none_of(captured.contributions, waits)) continue;
    Sum& sum = sums_[i];
    F* to = sum.is_tree ? sum.tree.leaf() : sum.sum;
    const auto touch = [&](std::int64_t from, std::int64_t last) {
      if (sum.is_tree) sum.tree.touch(from / page, last / page + 1);
    };
    for (std::int64_t k = 0; k < keys; ++k) {
      for (std::size_t tile = 0; tile < static_cast<std::size_t>(tiles_); ++tile) {
        if (taken_[static_cast<std::int64_t>(tile) * kernels_.plan.key_block + k] == 0) continue;
        for (const std::size_t c : captured.contributions) {
          if (!waits(c)) continue;
          const Part& part = parts_[place(c, tile)];
          add_key(part.given, part.queries, k, to, captured.count, touch);
        }
      }
    }
  }
}

template <class F>
bool TaskGradients<F>::add_lanes(const CapturedSum& captured, Sum& sum, std::size_t contribution,
                                 std::size_t tile) {
  const F* values = lanes(contribution, tile);
  const Contributions<F> all = given(contribution, tile);
  for (std::int64_t q = 0; q < all.queries; ++q) {
    const std::int64_t offset = all.by_query[q];
    if (values[q] == F{0} || offset < 0 || offset >= captured.count) continue;
    if (sum.is_tree) sum.tree.touch(offset / page, offset / page + 1);
    (sum.is_tree ? sum.tree.leaf() : sum.sum)[offset] += values[q];
  }
  return !has_nan(values, all.queries);
}

template <class F>
bool TaskGradients<F>::add_group() {
  bool clean = true;
  for (std::size_t i = 0; i < captured_.size(); ++i)
    for (std::size_t tile = 0; tile < static_cast<std::size_t>(tiles_); ++tile)
      for (const std::size_t c : captured_[i].contributions)
        if (queries_[tile] > 0 && !kernels_.keyed[c])
          clean = add_lanes(captured_[i], sums_[i], c, tile) && clean;
  return clean;
}

template <class F>
void TaskGradients<F>::close_leaf() {
  for (std::size_t i = 0; i < captured_.size(); ++i)
    if (sums_[i].is_tree) sums_[i].tree.close_leaf();
}

template <class F>
void TaskGradients<F>::close_leaf(const plan::LeafEnd& end, std::int64_t task, ShareSink& sink) {
  for (std::size_t i = 0; i < captured_.size(); ++i) {
    if (!sums_[i].is_tree) continue;
    sums_[i].tree.close_leaf(end, [&](std::size_t piece, std::int64_t begin, std::int64_t past,
                                      const F* values) {
      sink.put(i, task, piece, {begin * page, std::min(past * page, captured_[i].count)}, values);
    });
  }
}

// Pages that hold something: most tasks have little of a large gradient.
template <class F>
bool TaskGradients<F>::hand_over(std::int64_t task, ShareSink& sink) {
  bool clean = true;
  for (std::size_t i = 0; i < captured_.size(); ++i) {
    if (sums_[i].is_tree || ordered_[i] == nullptr) continue;
    const F* own = sums_[i].sum;
    for (std::int64_t begin = 0; begin < captured_[i].count; begin += page) {
      const std::int64_t end = std::min(begin + page, captured_[i].count);
      if (std::all_of(own + begin, own + end, [](F x) { return x == F{0}; })) continue;
      clean = clean && !has_nan(own + begin, end - begin);
      sink.put(i, task, ShareSink::whole_task, {begin, end}, own + begin);
    }
  }
  return clean;
}

template <class F>
bool TaskGradients<F>::deliver(std::int64_t task) {
  bool clean = true;
  for (std::size_t i = 0; i < captured_.size(); ++i) {
    const std::int64_t count = captured_[i].count;
    F* result = static_cast<F*>(captured_[i].sum);
    Sum& sum = sums_[i];
    if (ordered_[i] != nullptr) {
      const F* own = sum.is_tree ? sum.tree.finish() : sum.sum;
      clean = clean && !has_nan(own, count);
      const F* total = ordered_[i]->deliver(0, task, own);
      if (total != nullptr && total != result) std::copy_n(total, count, result);
    } else if (sum.is_tree) {
      sum.tree.finish_touched([&](std::int64_t begin, std::int64_t end, const F* own) {
        const std::int64_t elements = std::min(end * page, count) - begin * page;
        clean = clean && !has_nan(own, elements);
        // Other tasks may be adding to the elements where this one has nothing.
        F* to = result + begin * page;
        for (std::int64_t e = 0; e < elements; ++e)
          if (own[e] != F{0}) to[e] += own[e];
      });
    }
  }
  return clean;
}

template class TaskGradients<float>;
template class TaskGradients<double>;

}  // namespace treadle::run
