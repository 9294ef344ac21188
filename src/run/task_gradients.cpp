// A task's contributions to gradients of captures: carved, added, delivered.
#include "run/task_gradients.h"

#include <algorithm>

#include "run/contributions.h"

namespace treadle::run {

template <class F>
void TaskGradients<F>::carve(Carver& carver) {
  const auto contributions = static_cast<std::int64_t>(kernels_.separable.size());
  values_ = carver.take<F>(contributions * stride());
  offsets_ = carver.take<std::int64_t>(contributions * stride());
  sums_ = carver.take<F*>(static_cast<std::int64_t>(captured_.size()));
  for (std::size_t i = 0; i < captured_.size(); ++i) {
    F* sum = ordered_[i] == nullptr ? static_cast<F*>(captured_[i].sum)
                                    : carver.take<F>(captured_[i].count);
    if (sums_ != nullptr) sums_[i] = sum;  // not while measuring
  }
}

template <class F>
std::int64_t TaskGradients<F>::bytes_of_block(const plan::TilePlan& plan,
                                              std::int64_t contributions) {
  BackwardKernels kernels;
  kernels.plan = plan;
  kernels.separable.resize(static_cast<std::size_t>(contributions));
  return measured([&](Carver& carver) { TaskGradients<F>(kernels, {}, {}).carve(carver); });
}

template <class F>
void TaskGradients<F>::clear() {
  for (std::size_t i = 0; i < captured_.size(); ++i)
    if (ordered_[i] != nullptr) std::fill_n(sums_[i], captured_[i].count, F{0});
}

template <class F>
void TaskGradients<F>::set(plan::BackwardKernelArgs& args) const {
  args.contribution_values = values_;
  args.contribution_offsets = offsets_;
  args.contribution_stride = stride();
}

template <class F>
bool TaskGradients<F>::add(std::int64_t keys, std::int64_t queries) {
  bool clean = true;
  for (std::size_t i = 0; i < captured_.size(); ++i) {
    for (const std::size_t c : captured_[i].contributions) {
      const std::int64_t first = static_cast<std::int64_t>(c) * stride();
      const Contributions<F> given{.values = values_ + first,
                                   .offsets = offsets_ + first,
                                   .keys = keys,
                                   .queries = queries,
                                   .width = kernels_.plan.width(),
                                   .separable = kernels_.separable[c]};
      clean = add_contributions(given, sums_[i], captured_[i].count) && clean;
    }
  }
  return clean;
}

template <class F>
void TaskGradients<F>::deliver(std::int64_t task) {
  for (std::size_t i = 0; i < captured_.size(); ++i) {
    if (ordered_[i] == nullptr) continue;
    const F* sum = ordered_[i]->deliver(0, task, sums_[i]);
    F* result = static_cast<F*>(captured_[i].sum);
    if (sum != nullptr && sum != result) std::copy_n(sum, captured_[i].count, result);
  }
}

template class TaskGradients<float>;
template class TaskGradients<double>;

}  // namespace treadle::run
