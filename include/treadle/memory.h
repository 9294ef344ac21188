// Working memory that calls keep for later calls.
//
//   causal.forward({q, k, v});               // a call of many tokens needs much of it
//   std::int64_t bytes = release_memory();   // free it if no such call follows soon
//
// Calls share a pool of it, so a warm call allocates next to nothing. Memory that calls have not
// needed for some time is freed automatically.
#pragma once

#include <cstdint>

#include "treadle/api.h"

namespace treadle {

// Frees what no call is using, and says how many bytes that were. May be called at any time, from
// any thread. Compiled kernels stay.
TREADLE_API std::int64_t release_memory();

}  // namespace treadle
