// Parts that come early wait in a list; the next one in order takes them along. Read deliver()
// first.
#include "run/ordered_sums.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <thread>
#include <utility>

namespace treadle::run {

template <class F>
OrderedSums<F>::OrderedSums(const Parts& parts)
    : size_(parts.size),
      chunks_(parts.chunks),
      goes_on_(parts.goes_on),
      places_(static_cast<std::size_t>(parts.places)),
      sums_(parts.sums) {
  for (Place& place : places_) place.started = parts.goes_on;
}

// Parts are left over only when a call has failed.
template <class F>
OrderedSums<F>::~OrderedSums() {
  for (Place& place : places_)
    while (place.early != nullptr) ::operator delete(std::exchange(place.early, place.early->next));
}

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
bool OrderedSums<F>::keep(Place& place, std::int64_t chunk, const F* part) {
  const std::size_t numbers = part == nullptr ? 0 : static_cast<std::size_t>(size_);
  void* memory = ::operator new(sizeof(Early) + numbers * sizeof(F), std::nothrow);
  if (memory == nullptr) return false;
  place.early =
      std::construct_at(static_cast<Early*>(memory),
                        Early{.chunk = chunk, .empty = part == nullptr, .next = place.early});
  std::copy_n(part, numbers, place.early->part());
  return true;
}

template <class F>
bool OrderedSums<F>::add_early(Place& place, F* sum) {
  Early** at = &place.early;
  while (*at != nullptr && (*at)->chunk != place.next) at = &(*at)->next;
  if (*at == nullptr) return false;
  Early* early = std::exchange(*at, (*at)->next);
  add(place, sum, early->empty ? nullptr : early->part());
  ::operator delete(early);
  ++place.next;
  return true;
}

template <class F>
const F* OrderedSums<F>::deliver(std::int64_t place, std::int64_t chunk, const F* part) {
  Place& here = places_[static_cast<std::size_t>(place)];
  if (chunks_ == 1 && part != nullptr && !goes_on_) return part;
  F* sum = sums_ + place * size_;
  std::unique_lock lock(locks_[static_cast<std::size_t>(place) % locks_.size()]);
  while (chunk != here.next) {
    if (given_up_ || keep(here, chunk, part)) return nullptr;
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    lock.lock();
  }
  add(here, sum, part);
  ++here.next;
  while (add_early(here, sum)) {
  }
  if (here.next < chunks_) return nullptr;
  if (!here.started) std::fill_n(sum, size_, F{0});
  return sum;
}

template class OrderedSums<float>;
template class OrderedSums<double>;

}  // namespace treadle::run
