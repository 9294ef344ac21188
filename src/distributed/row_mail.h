// Rows of queries that travel: to ranks that compute parts with them, and what those find back to their owners.
//
// Both ends of a message know all parts, so it has rows alone: those that parts need, tensor after tensor
// (distributed/query_needs.h); what they find, part after part, in the order of the assignment, tensor after tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "distributed/channel.h"
#include "distributed/held_plan.h"
#include "distributed/part.h"
#include "treadle/view.h"

namespace treadle::distributed {

// Bytes of a row of some tensors together.
struct RowBytes {
  std::int64_t sum = 0;
  RowBytes& add(DType type, std::int64_t length) {
    sum += static_cast<std::int64_t>(size_of(type)) * length;
    return *this;
  }
};
// What a call sends of each row to who computes it, and what comes back: of a part, for its results differ.
struct RowTraffic {
  RowBytes there;
  RowBytes met;  // of a slice, where parts of cut leaves meet
  std::function<std::int64_t(const PartShape&)> back;
};
RowTraffic forward_rows(const Plan::Held& held, bool lse, bool max);
RowTraffic backward_rows(const Plan::Held& held);

// What comes back begins, part by part, where any number may.
template <class Byte>
Byte* aligned(Byte* at) {
  constexpr std::uintptr_t most = 8;
  return at + (most - reinterpret_cast<std::uintptr_t>(at) % most) % most;
}

// Bytes of rows between this rank and another: of parts of the other that have rows of this one, and the reverse.
std::int64_t bytes_to_parts(const Plan::Held& held, int rank, const RowBytes& row);
std::int64_t bytes_from_homes(const Plan::Held& held, int rank, const RowBytes& row);
std::int64_t bytes_to_homes(const Plan::Held& held, int rank, const RowTraffic& rows);
std::int64_t bytes_from_parts(const Plan::Held& held, int rank, const RowTraffic& rows);

// Bytes of what meets here from another rank, and of what meets there.
std::int64_t bytes_met(const Plan::Held& held, int cut_rank, int joining_rank, const RowBytes& row);

// What a call with such rows moves: `sums`: of a backward, so with rows of dK and dV.
Traffic traffic_of(const Plan::Held& held, const RowTraffic& rows, bool sums);
std::int64_t bytes_of_sums(const Plan::Held& held, std::span<const SumRows> sums);

// All of a mail's messages that were made, counted.
void count(Traffic& moved, const Mail& mail);

}  // namespace treadle::distributed
