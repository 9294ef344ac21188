// Numbers about a layout, for its holder.
#include "backend/held_layout.h"

namespace treadle {

double Layout::density() const {
  if (empty() || held_->layout.all_pairs() == 0) return 0;
  return static_cast<double>(held_->layout.run_pairs()) /
         static_cast<double>(held_->layout.all_pairs());
}

std::int64_t Layout::bytes() const { return empty() ? 0 : held_->layout.bytes(); }

std::string Layout::describe() const { return empty() ? "no layout\n" : to_text(held_->layout); }

}  // namespace treadle
