// Remembers, for every kind of call, the largest that was quick.
#include "pace.h"

#include <algorithm>

namespace treadle::python {
namespace {

constexpr auto quick_enough = std::chrono::milliseconds(20);
constexpr double not_much_larger = 4;

}  // namespace

CallSize::CallSize(Operation what, const Inputs& inputs)
    : operation(what), types{inputs.q.dtype(), inputs.k.dtype(), inputs.v.dtype()} {
  // A wrong shape is for the call to refuse.
  for (const ConstView* view : {&inputs.q, &inputs.k, &inputs.v})
    if (view->rank() != 4) return;
  dim = inputs.q.size(3);
  value_dim = inputs.v.size(3);
  pairs = static_cast<double>(inputs.q.size(0) * inputs.q.size(1)) *
          static_cast<double>(inputs.q.size(2)) * static_cast<double>(inputs.k.size(2));
}

bool CallSize::same_kind(const CallSize& other) const {
  return operation == other.operation && types == other.types && dim == other.dim &&
         value_dim == other.value_dim;
}

bool Pace::is_quick(const CallSize& size) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(quick_, [&](const CallSize& known) {
    return known.same_kind(size) && size.pairs <= not_much_larger * known.pairs;
  });
}

void Pace::note(const CallSize& size, std::chrono::steady_clock::duration took) {
  const std::lock_guard lock(mutex_);
  const auto known =
      std::ranges::find_if(quick_, [&](const CallSize& one) { return one.same_kind(size); });
  if (took < quick_enough) {
    if (known == quick_.end()) {
      quick_.push_back(size);
    } else {
      known->pairs = std::max(known->pairs, size.pairs);
    }
  } else if (known != quick_.end()) {  // next time this one is not quick
    known->pairs = std::min(known->pairs, size.pairs / (2 * not_much_larger));
  }
}

}  // namespace treadle::python
