// One call on several machines: each rank has some of the queries and some of the keys.
//
//   namespace td = treadle::distributed;
//   auto ranks = mpi_exchange(MPI_COMM_WORLD);                       // treadle/mpi.h
//   td::Shards rows = td::Shards::even(length, ranks->ranks());
//   TensorSpec whole_q{DType::f32, {1, 32, length, 128}};                    // of all ranks together
//   TensorSpec whole_k{DType::f32, {1, 8, length, 128}};
//   td::Plan plan = td::plan(causal, ranks, whole_q, whole_k, whole_k, rows, rows);  // once for a mask
//   Forward y = td::forward(causal, plan, {q, k, v}, {.lse = true});         // my rows in, my rows out
//   Backward g = td::backward(causal, plan, {q, k, v}, {y.out, y.lse}, dout);
//
// Tokens stay where they are: positions, lengths and shards of any size. The plan cuts the work into
// parts of equal time, rows travel to who needs them, and results have the bits of one machine's call.
// All ranks call plan, forward and backward in the same order; an error on one is thrown on all.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
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

  // How many ranks and positions there are, and where those of a rank begin, end, and how many they are.
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

  // Whether all borders are the same.
  bool operator==(const Shards&) const = default;
};

// How gradients of keys and values, which several ranks add to, are summed.
enum class Sums : std::uint8_t {
  same_bits,  // in the order of one machine's call, so with its bits
  per_rank,   // each rank its own first: fewer bytes, and bits that depend on the number of ranks
};

// A capture of which every rank has its own rows alone, as it has of queries or of keys: along one axis.
// It is collected for the time of a call, and its gradient is of this rank's rows.
struct ShardedCapture {
  // Which rows it is split like.
  enum class Like : std::uint8_t { queries, keys };

  std::string name;           // that of the capture
  Like like = Like::queries;  // what its axis counts
  int axis = 0;               // which one is split
};

// What the planner assumes and may do.
struct PlanOptions {
  double gigabits = 25;                 // per second, of each rank's network
  double teraflops = 0;                 // per second, of each rank; 0: 2
  double excess = 0.02;                 // how much more than its share a rank may keep for itself
  int head_groups = 0;                  // 0: what takes least time
  Sums sums = Sums::same_bits;          // of gradients
  std::vector<ShardedCapture> sharded;  // all others are the same on all ranks
  // How late a rank may be before the others give up and throw an error that names it.
  std::chrono::milliseconds patience = std::chrono::minutes(10);
};

// What a forward or a backward moves, in bytes of this rank.
struct Traffic {
  std::int64_t sent = 0, received = 0;  // bytes
  std::int64_t messages = 0;            // sent

  // Whether all three are the same.
  bool operator==(const Traffic&) const = default;
};

// Who computes what and which rows travel: for one mask, lengths and shards; for all layers and both
// directions. Copies share it. A plan makes one call at a time.
class TREADLE_API Plan {
 public:
  // The largest share of the work that a rank has, over the mean.
  [[nodiscard]] double balance() const;
  // Of a forward call that asks for lse, as training does, and of a backward call, besides gradients of captures:
  // what this rank moves in each such call.
  [[nodiscard]] Traffic forward_traffic() const;
  [[nodiscard]] Traffic backward_traffic() const;
  // What this rank has moved in all calls with the plan.
  [[nodiscard]] Traffic forward_moved() const;
  [[nodiscard]] Traffic backward_moved() const;
  // What this rank would receive if all ranks collected all keys and values.
  [[nodiscard]] std::int64_t bytes_of_all_gather() const;
  // Bytes that a forward call of this rank takes besides its inputs and results.
  [[nodiscard]] std::int64_t memory() const;
  // Candidates, what they would cost, and the winner's parts.
  [[nodiscard]] std::string describe() const;

  struct Held;  // internal
  explicit Plan(std::shared_ptr<Held> held) : held_(std::move(held)) {}
  // Internal.
  [[nodiscard]] Held& held() const { return *held_; }

 private:
  std::shared_ptr<Held> held_;
};

// All ranks call it with the same functions, shapes, shards and options: q, k and v are the whole call's. Of
// `call` the mask's captures count, and who works on it.
[[nodiscard]] TREADLE_API Plan plan(const Attention& attention, std::shared_ptr<Exchange> exchange,
                                    const TensorSpec& q, const TensorSpec& k, const TensorSpec& v,
                                    const Shards& queries, const Shards& keys,
                                    const Call& call = {}, const PlanOptions& options = {});

// As Attention::forward and backward, of this rank's rows: inputs, results and what is saved are
// those of its queries and keys. Captures that are not sharded, and sinks, are the same on all
// ranks, and each gets their whole gradients. The attention may be another than the plan's, as long as its mask is the same.
[[nodiscard]] TREADLE_API Forward forward(const Attention& attention, const Plan& plan,
                                          const Inputs& mine, const Call& call = {});
TREADLE_API void forward_into(const Attention& attention, const Plan& plan,
                              const ForwardViews& results, const Inputs& mine,
                              const Call& call = {});
[[nodiscard]] TREADLE_API Backward backward(const Attention& attention, const Plan& plan,
                                            const Inputs& mine, const Saved& saved,
                                            const ConstView& dout,
                                            const std::optional<ConstView>& dlse = std::nullopt,
                                            const Call& call = {});
TREADLE_API void backward_into(const Attention& attention, const Plan& plan,
                               const BackwardViews& results, const Inputs& mine, const Saved& saved,
                               const ConstView& dout,
                               const std::optional<ConstView>& dlse = std::nullopt,
                               const Call& call = {});

// For programs whose ranks prepare a call by themselves. A rank that cannot make the call that the others are about to
// make says so: it throws, as all of them do from plan, forward, backward or agree, "call: rank 2: why".
[[noreturn]] TREADLE_API void refuse(std::shared_ptr<Exchange> exchange, const std::string& why,
                                     std::chrono::milliseconds patience = std::chrono::minutes(10));
// A number of each rank, in their order. All ranks call it.
[[nodiscard]] TREADLE_API std::vector<std::uint64_t> agree(
    std::shared_ptr<Exchange> exchange, std::uint64_t own,
    std::chrono::milliseconds patience = std::chrono::minutes(10));
// Equally many bytes of each rank, in their order.
TREADLE_API void gather(std::shared_ptr<Exchange> exchange, std::span<const std::byte> own,
                        std::span<std::byte> all,
                        std::chrono::milliseconds patience = std::chrono::minutes(10));

}  // namespace treadle::distributed
