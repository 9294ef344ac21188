// Parts that come early wait in a list; the next one in order takes them along.
#include "run/ordered_sums.h"

#include <algorithm>

namespace treadle::run {

template <class F>
OrderedSums<F>::OrderedSums(F* sums, std::int64_t places, std::int64_t size, std::int64_t chunks)
    : size_(size), chunks_(chunks), places_(static_cast<std::size_t>(places)), sums_(sums) {}

template <class F>
void OrderedSums<F>::add(Place& place, F* sum, const F* part) {
  if (part == nullptr) return;
  if (!place.started) {
    std::copy_n(part, size_, sum);
    place.started = true;
    return;
  }
  for (std::int64_t i = 0; i < size_; ++i) sum[i] += part[i];
}

template <class F>
const F* OrderedSums<F>::deliver(std::int64_t place, std::int64_t chunk, const F* part) {
  Place& here = places_[static_cast<std::size_t>(place)];
  if (chunks_ == 1 && part != nullptr) return part;
  F* sum = sums_ + place * size_;
  const std::lock_guard lock(locks_[static_cast<std::size_t>(place) % locks_.size()]);
  if (chunk != here.next) {
    Early early{chunk, nullptr};
    if (part != nullptr) {
      early.part = std::make_unique_for_overwrite<F[]>(static_cast<std::size_t>(size_));
      std::copy_n(part, size_, early.part.get());
    }
    here.early.push_back(std::move(early));
    return nullptr;
  }
  add(here, sum, part);
  for (++here.next;; ++here.next) {
    const auto found = std::ranges::find(here.early, here.next, &Early::chunk);
    if (found == here.early.end()) break;
    add(here, sum, found->part.get());
    here.early.erase(found);
  }
  if (here.next < chunks_) return nullptr;
  if (!here.started) std::fill_n(sum, size_, F{0});
  return sum;
}

template class OrderedSums<float>;
template class OrderedSums<double>;

}  // namespace treadle::run
