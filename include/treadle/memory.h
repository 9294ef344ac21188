// Working memory that calls leave for the next ones.
//
//   causal.forward({q, k, v});               // a call of many tokens needs much of it
//   std::int64_t bytes = release_memory();   // nobody will make one for a while
//
// Calls share a pool of it, so that a warm call allocates next to nothing. What calls have not
// needed for some time leaves the pool by itself.
#pragma once

#include <cstdint>

#include "treadle/api.h"

namespace treadle {

// Frees what no call is using, and says how many bytes that were. May be called at any time, from
// any thread. Compiled kernels stay.
TREADLE_API std::int64_t release_memory();

}  // namespace treadle
