// Gradients of captures: zeros to add to, in place where that can be.
#include "backend/cpu/capture_sums.h"

#include <algorithm>

namespace treadle::backend::cpu {

CaptureSums::CaptureSums(const ir::Joint& joint, const std::vector<CaptureView>& wanted,
                         DType compute, bool direct) {
  results_.reserve(wanted.size());
  for (const CaptureView& view : wanted) {
    const View& gradient = view.gradient;
    run::CapturedSum sum{.contributions = {}, .count = gradient.count()};
    for (std::size_t c = 0; c < joint.contributions.size(); ++c)
      if (joint.contributions[c].slot.name == view.name) sum.contributions.push_back(c);
    sum.reach = plan::capture_reach(joint, view.name, gradient.rank());
    const bool in_place = direct && gradient.dtype() == compute &&
                          gradient.strides() == contiguous_strides(gradient.shape());
    results_.emplace_back(gradient, !in_place, compute);
    sum.sum = results_.back().view().data();
    sum.clear = in_place;
    sums_.push_back(std::move(sum));
  }
  for (const ir::Contribution& contribution : joint.contributions) {
    const auto at = std::ranges::find(wanted, contribution.slot.name, &CaptureView::name);
    const Dims of = contiguous_strides(at->gradient.shape());
    strides_.insert(strides_.end(), of.begin(), of.end());
  }
}

void CaptureSums::deliver() const {
  for (const PlacedResult& result : results_) result.deliver();
}

}  // namespace treadle::backend::cpu
