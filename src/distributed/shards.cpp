// Shards by position.
#include <algorithm>

#include "base/error.h"
#include "treadle/distributed.h"

namespace treadle::distributed {

Shards Shards::even(std::int64_t length, int ranks) {
  if (length < 0 || ranks < 1)
    base::fail("Shards::even: length {} on {} ranks; there must be a rank and no negative length",
               length, ranks);
  const std::int64_t count = (length + ranks - 1) / ranks;
  Shards shards;
  for (std::int64_t r = 0; r <= ranks; ++r) shards.starts.push_back(std::min(r * count, length));
  return shards;
}

int Shards::owner(std::int64_t position) const {
  const auto next = std::ranges::upper_bound(starts, position);
  return static_cast<int>(next - starts.begin()) - 1;
}

}  // namespace treadle::distributed
