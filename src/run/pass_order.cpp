// Looks which lists of runs are empty.
#include "run/pass_order.h"

namespace treadle::run {
namespace {

bool has_keys(const layout::Layout& layout, std::int64_t b, std::int64_t h) {
  for (std::int64_t tile = 0; tile < layout.tiles().count(); ++tile)
    if (!layout.runs(b, h, tile).empty()) return true;
  return false;
}

}  // namespace

PassOrder::PassOrder(const std::vector<std::vector<const layout::Layout*>>& passes)
    : single_(false), count_(passes.size()) {
  const layout::Extent& extent = passes.front().front()->extent();
  heads_ = extent.heads;
  lists_ = extent.batch * extent.heads;
  works_.resize(count_ * static_cast<std::size_t>(lists_));
  for (std::int64_t b = 0; b < extent.batch; ++b) {
    for (std::int64_t h = 0; h < extent.heads; ++h) {
      int workers = 0;
      for (std::size_t pass = 0; pass < count_; ++pass) {
        bool any = false;
        for (const layout::Layout* layout : passes[pass]) any = any || has_keys(*layout, b, h);
        works_[at(pass, b, h)] = any ? 1 : 0;
        workers += works_[at(pass, b, h)];
      }
      has_states_ = has_states_ || workers > 1;
      if (workers == 0) works_[at(count_ - 1, b, h)] = 1;
    }
  }
}

bool PassOrder::continues(std::size_t pass, std::int64_t b, std::int64_t h) const {
  for (std::size_t earlier = 0; !single_ && earlier < pass; ++earlier)
    if (works(earlier, b, h)) return true;
  return false;
}

bool PassOrder::leaves(std::size_t pass, std::int64_t b, std::int64_t h) const {
  for (std::size_t later = pass + 1; !single_ && later < count_; ++later)
    if (works(later, b, h)) return true;
  return false;
}

}  // namespace treadle::run
