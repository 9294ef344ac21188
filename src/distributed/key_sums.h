// dK and dV: sums over queries that several ranks have.
//
// What a part adds to them are nodes of a tree (plan/tree_parts.h), for each list of keys, a batch entry of a key
// head. When the plan is made every rank tells the owners of the keys which rows of which nodes it will send
// (SumRows). In a call a SumSink puts them straight into messages, and the owner joins them in the order of one
// machine's call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "distributed/buffer.h"
#include "distributed/key_set.h"
#include "distributed/part.h"
#include "plan/tree_parts.h"
#include "treadle/distributed.h"

namespace treadle::distributed {

// Rows of dK and dV that one rank sends to their owner: range by range, rows of dK and then of dV, of the compute
// type.
struct SumRows {
  std::int64_t pass = 0;
  std::int64_t list = 0;  // batch entry * key heads + key head
  plan::TreePiece piece;
  std::int64_t leaves = 0;  // of the tree
  Ranges keys;

  [[nodiscard]] std::int64_t rows() const;
};

std::vector<std::byte> to_bytes(std::span<const SumRows> sums);
std::vector<SumRows> sums_from_bytes(std::span<const std::byte> bytes);
std::int64_t rows_of(std::span<const SumRows> sums);

// What the parts of a rank will send, owner by owner, and where each row belongs.
class SumPlaces {
 public:
  SumPlaces() = default;
  SumPlaces(const std::vector<Part>& parts, const std::vector<PassPlan>& passes,
            const backend::Sizes& sizes, const Shards& keys);

  struct Place {
    layout::Range keys;
    int owner = 0;
    std::int64_t row = 0;  // of its message, where the range begins
  };
  // Ascending.
  [[nodiscard]] std::span<const Place> of(std::size_t part, std::size_t slice, std::int64_t list,
                                          std::size_t piece) const {
    const std::vector<Place>& some =
        places_[part][slice][static_cast<std::size_t>(list) * pieces_[part] + piece];
    return some;
  }
  [[nodiscard]] const std::vector<std::vector<SumRows>>& to() const { return to_; }  // by owner

 private:
  std::vector<std::size_t> pieces_;  // by part
  std::vector<std::vector<std::vector<std::vector<Place>>>> places_;
  std::vector<std::vector<SumRows>> to_;
};

// What a rank got: its keys' dK and dV are the joined sums.
struct SumMessage {
  std::span<const SumRows> rows;
  const std::byte* bytes = nullptr;
};
// dk and dv are of any float type, [batch or 1, key heads, keys of this rank, dim], last strides 1.
void join_sums(std::span<const SumMessage> from, const backend::Sizes& sizes, layout::Range keys,
               std::size_t passes, Sums sums, double scale, const View& dk, const View& dv,
               const base::Workers& workers);

}  // namespace treadle::distributed
