// A distributed forward, for those who run one within another call.
#pragma once

#include <chrono>
#include <functional>
#include <new>
#include <string_view>
#include <thread>

#include "api/compiled.h"
#include "distributed/agreement.h"
#include "distributed/held_plan.h"
#include "treadle/distributed.h"

namespace treadle::distributed {

struct WantedRows {
  bool lse = false, max = false;
};

// `results` checks or makes them; what it throws is told to all ranks. Rows of out are contiguous.
void run_forward(const Attention::Compiled& compiled, Plan::Held& held, const Inputs& mine,
                 const Call& call, const WantedRows& wanted,
                 const std::function<ForwardViews()>& results);

// Throws if q, k and v are not those of this rank.
void check_shard(std::string_view call, const Plan::Held& held, const Inputs& mine);

// For Mail::start_after(): throws if some rank makes another call, or could not begin.
void check_begin(Plan::Held& held, std::span<const Envelope> all);
// Waits until all ranks have begun; throws what check_begin() found, on all ranks the same.
void hear_refusal(Channel& channel, Mail& in, std::span<const Envelope> all, const Failure& own);

// Writes what all have agreed on, which may be done again. The others have returned by then: a rank that has no memory
// tries again before it throws alone.
template <class F>
void insist(const F& write) {
  for (int times = 1;; ++times) {
    try {
      write();
      return;
    } catch (const std::bad_alloc&) {
      if (times == 5) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

}  // namespace treadle::distributed
