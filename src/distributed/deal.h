// Deals the work of a head group to its parts: everybody about as much, and most of it where its
// queries or keys are.
//
//   for (const Share& share : deal(group, Route::transport, 0.02)) ...
//
// Boxes of work go whole as long as they fit; else by key heads, then by batch entries, then by
// chunks of keys. A leaf that one key head of would keep a part busy for half of its time or more is cut at
// chunks from the start, and goes to who has the keys.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "distributed/assignment.h"
#include "distributed/homes.h"
#include "distributed/work.h"
#include "layout/range.h"

namespace treadle::distributed {

// Some work of one leaf.
struct Box {
  std::int64_t pass = 0, leaf = 0;
  layout::Range batch, key_heads, chunks;
};

struct Share {
  Box box;
  int part = 0;
};

// Pairs of boxes.
class Costs {
 public:
  Costs(std::span<const PassWork> passes, std::int64_t batch, std::int64_t key_heads);

  [[nodiscard]] double of(const Box& box) const;
  // From the first to the last of its chunks that has pairs; less than nothing if none has.
  [[nodiscard]] layout::Range seen(const Box& box) const;
  [[nodiscard]] const PassWork& pass(std::int64_t number) const {
    return passes_[static_cast<std::size_t>(number)];
  }
  [[nodiscard]] std::int64_t passes() const { return std::ssize(passes_); }
  [[nodiscard]] std::int64_t batch() const { return batch_; }
  [[nodiscard]] std::int64_t chunks() const { return chunks_; }
  // Whether all batch entries and key heads have the same work in a pass.
  [[nodiscard]] bool are_alike(std::int64_t number) const {
    return pass(number).batch_lists == 1 && pass(number).head_lists == 1;
  }
  // Whether all key heads have the same work.
  [[nodiscard]] bool heads_alike() const { return heads_alike_; }

 private:
  // each(list); how often each of them counts.
  template <class Each>
  double for_each_list(const Box& box, const Each& each) const;

  std::span<const PassWork> passes_;
  std::int64_t batch_, chunks_ = 0;
  bool heads_alike_ = true;
  struct Sums {
    std::vector<double> before;       // [list][chunk]: pairs of earlier chunks; one more at the end
    std::vector<layout::Range> seen;  // [list]: chunks
  };
  std::vector<Sums> sums_;  // of each pass
};

// What there is to deal.
struct Group {
  const Costs& costs;
  layout::Range key_heads;
  int parts = 1;
  // Of each pass and leaf, and of each chunk of keys.
  const std::vector<std::vector<int>>& homes;           // a part, or -1
  const std::vector<std::vector<int>>& parts_of_chunk;  // ascending
  // Bytes of the state of a row over bytes of a row of K and V.
  double state_in_keys = 1;
  layout::Range chunks = {};  // the number of the first, as plan/chunks.h counts
  // For each pass, how many pairs take as long as to send the states of a leaf and a chunk.
  std::vector<double> pairs_of_states = {};
  Divisible divisible;
};

// Everything of the group once. Where a leaf is cut, somebody has its first chunk; of the others,
// those without pairs may be missing.
std::vector<Share> deal(const Group& group, Route route, double excess);

}  // namespace treadle::distributed
