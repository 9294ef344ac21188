// Threads as ranks: an Exchange for tests, and for a look at a distributed call without a cluster.
//
//   std::vector<std::shared_ptr<Exchange>> four = in_process_exchanges(4, {.seed = 17});
//   silence_rank(*four[2]);   // what would happen if rank 2 hung?
//
// It is stricter than a network, so that a mistake shows: messages of different ranks arrive in any
// order, and a send is done only when the other rank has taken it. A message has exactly the size
// of its receive. All ranks of a gather bring equally many bytes.
//
// Each rank belongs to one thread at a time, different ranks to different threads, and each needs an
// executor of its own (Call::executor): tasks of ranks that wait for each other must not wait for the
// same threads. When a rank has abandoned the others, all of them throw whatever they call. A rank
// whose exchange is destroyed has left, and those who wait for it throw; messages of its that were
// given up still arrive.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "treadle/api.h"
#include "treadle/exchange.h"

namespace treadle {

// How messages travel between threads.
struct InProcessOptions {
  // Of the order in which messages arrive, which depends on the threads' pace, too.
  std::uint64_t seed = 0;
  // Every message arrives that much later than it was sent.
  std::chrono::microseconds delay{0};
};

// An exchange for each rank.
TREADLE_API std::vector<std::shared_ptr<Exchange>> in_process_exchanges(
    int ranks, const InProcessOptions& options = {});

// For tests of what a program does then; any thread may call them. Messages of a silent rank never
// leave. A dead one gets nothing done: the others throw when they wait for it, and so does itself.
TREADLE_API void silence_rank(Exchange& rank);
TREADLE_API void kill_rank(Exchange& rank);

}  // namespace treadle
