// Gradients of captures: zeros to add to, in place where that can be.
#include "backend/cpu/capture_sums.h"

#include <algorithm>
#include <cstring>

#include "base/copy.h"
#include "base/parallel.h"

namespace treadle::backend::cpu {
namespace {

// On all threads: the gradient of a bias of all pairs is larger than anything else in a call.
void fill_with_zeros(const View& view, Executor& executor) {
  constexpr std::int64_t piece = std::int64_t{1} << 20;
  const std::int64_t bytes = view.count() * static_cast<std::int64_t>(size_of(view.dtype()));
  base::parallel_for(executor, (bytes + piece - 1) / piece, [&](std::int64_t i) {
    std::memset(static_cast<std::byte*>(view.data()) + i * piece, 0,
                static_cast<std::size_t>(std::min(piece, bytes - i * piece)));
  });
}

}  // namespace

CaptureSums::CaptureSums(const ir::Joint& joint, const std::vector<CaptureView>& wanted,
                         DType compute, bool direct, Executor& executor)
    : wanted_(wanted) {
  for (const CaptureView& view : wanted) {
    const View& gradient = view.gradient;
    run::CapturedSum sum{.contributions = {}, .count = gradient.count()};
    for (std::size_t c = 0; c < joint.contributions.size(); ++c)
      if (joint.contributions[c].slot.name == view.name) sum.contributions.push_back(c);
    sum.reach = plan::capture_reach(joint, view.name, gradient.rank());
    tensors_.emplace_back();
    if (direct && gradient.dtype() == compute &&
        gradient.strides() == contiguous_strides(gradient.shape())) {
      fill_with_zeros(gradient, executor);
      sum.sum = gradient.data();
    } else {
      tensors_.back() = Tensor(compute, gradient.shape());
      sum.sum = tensors_.back().view().data();
    }
    sums_.push_back(std::move(sum));
  }
  for (const ir::Contribution& contribution : joint.contributions) {
    const auto at = std::ranges::find(wanted, contribution.slot.name, &CaptureView::name);
    const Dims of = contiguous_strides(at->gradient.shape());
    strides_.insert(strides_.end(), of.begin(), of.end());
  }
}

void CaptureSums::deliver() const {
  for (std::size_t i = 0; i < sums_.size(); ++i)
    if (sums_[i].sum != wanted_[i].gradient.data()) base::copy(wanted_[i].gradient, tensors_[i]);
}

}  // namespace treadle::backend::cpu
