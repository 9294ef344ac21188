// Partial sums that arrive in any order and are added in one: those of chunk 0, then 1, then 2.
//
// The thread that delivers the next part adds it, and then those that came early; others are kept
// until then. No thread waits, unless there is no memory to keep a part: then it waits for its
// turn, and nothing fails. So whoever delivers chunk c must not depend on chunks after c.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace treadle::run {

template <class F>
class OrderedSums {
 public:
  // `places` sums of `size` numbers each, of `chunks` parts. Their memory outlives this.
  struct Parts {
    F* sums = nullptr;
    std::int64_t places = 0, size = 0, chunks = 0;
    bool goes_on = false;  // the sums hold something already, which comes first
  };
  explicit OrderedSums(const Parts& parts);
  OrderedSums(F* sums, std::int64_t places, std::int64_t size, std::int64_t chunks)
      : OrderedSums(Parts{sums, places, size, chunks}) {}
  OrderedSums(const OrderedSums&) = delete;
  OrderedSums& operator=(const OrderedSums&) = delete;
  ~OrderedSums();

  // Chunk `chunk`'s part of the sum at `place`; null if it has none. Returns the sum, which may be
  // the part itself, when this was the last part that was missing, else null.
  const F* deliver(std::int64_t place, std::int64_t chunk, const F* part);

  // Some part will never come: nobody waits for it, and what the sums are does not matter.
  void give_up() { given_up_.store(true, std::memory_order_relaxed); }

 private:
  // A part that came early; its numbers follow it in memory.
  struct Early {
    std::int64_t chunk = 0;
    bool empty = false;
    Early* next = nullptr;

    F* part() { return reinterpret_cast<F*>(this + 1); }
  };
  struct Place {
    std::int64_t next = 0;  // chunk
    bool started = false;   // the sum holds something
    Early* early = nullptr;
  };

  // False if there is no memory.
  bool keep(Place& place, std::int64_t chunk, const F* part);
  // Adds the next part if it came early.
  bool add_early(Place& place, F* sum);
  void add(Place& place, F* sum, const F* part);

  std::int64_t size_, chunks_;
  bool goes_on_;
  std::vector<Place> places_;
  F* sums_;
  std::array<std::mutex, 64> locks_;  // of places with equal remainders
  std::atomic<bool> given_up_{false};
};

}  // namespace treadle::run
