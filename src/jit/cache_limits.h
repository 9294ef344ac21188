// How much the cache on disk may hold, and for how long.
#pragma once

#include <chrono>
#include <cstdint>

namespace treadle::jit {

struct CacheLimits {
  // Of all files; beyond it those go that were used longest ago.
  std::int64_t bytes = std::int64_t{256} << 20;
  std::chrono::seconds age = std::chrono::hours(30 * 24);  // since the last use
};

}  // namespace treadle::jit
