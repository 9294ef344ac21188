// What a Plan holds: who computes what, and which rows travel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "distributed/assignment.h"
#include "distributed/buffer.h"
#include "distributed/channel.h"
#include "distributed/key_sums.h"
#include "distributed/meeting.h"
#include "distributed/part.h"
#include "distributed/query_needs.h"
#include "distributed/shard_keys.h"
#include "distributed/work.h"
#include "treadle/distributed.h"

namespace treadle::distributed {

struct Plan::Held {
  Held(std::shared_ptr<Exchange> exchange, std::chrono::milliseconds patience)
      : channel(std::move(exchange), patience) {}

  Channel channel;
  SpareBuffers spare_forward, spare_backward;  // between calls
  std::uint64_t id = 0;                        // of the plan, the same on all ranks
  std::uint64_t number = 0;                    // of the next call
  base::Hash mask;
  std::string machine;
  backend::Sizes sizes;  // of the whole call
  DType q = DType::f32, k = DType::f32, v = DType::f32;
  Shards queries, keys;
  PlanOptions options;

  std::vector<PassPlan> passes;
  std::vector<Part> parts;  // that this rank computes
  std::vector<Away> away;   // that others compute, rank by rank, in their order
  std::vector<QueryNeeds> rows_from,
      rows_to;                              // rows of queries that come from a rank, and go there
  std::vector<Meeting> meetings;            // of parts of cut leaves, one of them this rank's
  std::vector<KeyNeeds> from, to;           // rows of keys that come from a rank, and that go there
  SumPlaces sums;                           // rows of dK and dV that go to a rank
  std::vector<std::vector<SumRows>> added;  // and that come from it

  double balance = 1;
  std::string description;
  Traffic forward, backward, forward_moved, backward_moved;

  [[nodiscard]] int rank() const { return channel.rank(); }
  [[nodiscard]] int ranks() const { return channel.ranks(); }
  [[nodiscard]] std::int64_t per_key_head() const { return sizes.heads / sizes.key_heads; }
  [[nodiscard]] layout::Range own_queries() const {
    return {queries.begin(rank()), queries.end(rank())};
  }
  [[nodiscard]] layout::Range own_keys() const { return {keys.begin(rank()), keys.end(rank())}; }
  // Along what pieces divide leaves; of chunks of keys only where tasks have several.
  Divisible divided{.heads = false, .batch = false, .chunks = false};
};

// What ranks must have alike for the same bits: the build, and the processor that its kernels are for.
std::string machine_of(const backend::Backend& backend);

// Rows of queries of parts: so many bytes each, of all batch entries and heads of the part.
std::int64_t rows_moved(const PartShape& shape, std::span<const RowRun> runs,
                        std::int64_t per_key_head);

// What the sums of the gradient of a capture allow.
Divisible divisible_by(const plan::CaptureReach& reach, const Plan::Held& held);

// What makes pieces of the work of all passes.
using Assign = std::function<std::vector<Piece>(Plan::Held&, std::span<const PassWork>)>;

// What plan() takes.
Assignment assign_work(const Attention& attention, const Call& call, const Plan::Held& held,
                       std::span<const PassWork> work);

// What plan() does, with pieces from anywhere: for each rank in turn they cover all leaves, batch entries, key heads and
// chunks once.
Plan make_plan(const Attention& attention, std::shared_ptr<Exchange> exchange, const TensorSpec& q,
               const TensorSpec& k, const TensorSpec& v, const Shards& queries, const Shards& keys,
               const Call& call, const PlanOptions& options, const Assign& assign);

}  // namespace treadle::distributed
