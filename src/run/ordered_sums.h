// Partial sums that arrive in any order and are added in one: those of chunk 0, then 1, then 2.
//
// No thread waits: the one that delivers the next part adds it, and then those that came early;
// others are kept until then.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace treadle::run {

template <class F>
class OrderedSums {
 public:
  // `places` sums of `size` numbers each, of `chunks` parts. Their memory outlives this.
  OrderedSums(F* sums, std::int64_t places, std::int64_t size, std::int64_t chunks);

  // Chunk `chunk`'s part of the sum at `place`; null if it has none. Returns the sum, which may be
  // the part itself, when this was the last part that was missing, else null.
  const F* deliver(std::int64_t place, std::int64_t chunk, const F* part);

 private:
  struct Early {
    std::int64_t chunk = 0;
    std::unique_ptr<F[]> part;  // null: none
  };
  struct Place {
    std::int64_t next = 0;  // chunk
    bool started = false;   // the sum holds something
    std::vector<Early> early;
  };

  void add(Place& place, F* sum, const F* part);

  std::int64_t size_, chunks_;
  std::vector<Place> places_;
  F* sums_;
  std::array<std::mutex, 64> locks_;  // of places with equal remainders
};

}  // namespace treadle::run
