// One call on several machines: each rank has some of the queries and some of the keys.
//
//   namespace td = treadle::distributed;
//   auto ranks = mpi_exchange(MPI_COMM_WORLD);                       // treadle/mpi.h
//   td::Shards rows = td::Shards::even(length, ranks->ranks());
//   td::Plan plan = td::plan(causal, ranks, {1, 32, 8, 128}, rows, rows);    // once for a mask and lengths
//   Forward y = td::forward(causal, plan, {q, k, v}, {.lse = true});         // my rows in, my rows out
//   Backward g = td::backward(causal, plan, {q, k, v}, {y.out, y.lse}, dout);
//
// Tokens stay where they are: positions, lengths and shards of any size. The plan cuts the work into
// parts of equal time, rows travel to who needs them, and results have the bits of one machine's call.
// All ranks call plan, forward and backward in the same order; an error on one is thrown on all.
#pragma once

#include <cstdint>
#include <vector>

#include "treadle/api.h"
#include "treadle/attention.h"
#include "treadle/exchange.h"

namespace treadle::distributed {

// Which rank has which positions: rank r those from starts[r] to starts[r + 1].
struct TREADLE_API Shards {
  std::vector<std::int64_t> starts;  // ascending from 0, one more than ranks

  // Rank r has r * c .. min((r + 1) * c, length), c = ceil(length / ranks): torch.chunk's split.
  static Shards even(std::int64_t length, int ranks);

  [[nodiscard]] int ranks() const { return static_cast<int>(starts.size()) - 1; }
  [[nodiscard]] std::int64_t length() const { return starts.back(); }
  [[nodiscard]] std::int64_t begin(int rank) const {
    return starts[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::int64_t end(int rank) const {
    return starts[static_cast<std::size_t>(rank) + 1];
  }
  [[nodiscard]] std::int64_t count(int rank) const { return end(rank) - begin(rank); }
  // Whose position it is.
  [[nodiscard]] int owner(std::int64_t position) const;

  bool operator==(const Shards&) const = default;
};

}  // namespace treadle::distributed
