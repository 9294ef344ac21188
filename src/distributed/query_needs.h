// Rows of queries that a rank computes parts with and another has: each travels once, for all parts that share it.
//
//   QueryNeeds needs(passes, sizes);
//   needs.add(part, part.from[rank]);              // part by part; both ends do the same
//   needs.take(q, first, to);                      // the message, tensor by tensor
//   needs.put(part, part.from[rank], packed, at);  // of it, what a part needs
//
// Parts share rows if their passes have the same tiles. A message has rows tiling by tiling, entry by entry, head by head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "distributed/part.h"
#include "distributed/row_runs.h"
#include "distributed/shard_keys.h"
#include "treadle/view.h"

namespace treadle::distributed {

class QueryNeeds {
 public:
  QueryNeeds(const std::vector<PassPlan>& passes, const backend::Sizes& sizes);

  void add(const PartShape& part, std::span<const RowRun> rows);

  // Of all entries and heads.
  [[nodiscard]] std::int64_t rows() const;
  // Of a tensor [batch, heads, length, ...] whose first row is that of position `first`. Moves `to` on.
  void take(const ConstView& from, std::int64_t first, std::byte*& to) const;
  // Into a part's tensor [batch, heads, rows, ...]; `from` is where the tensor begins in the message.
  void put(const PartShape& part, std::span<const RowRun> rows, const View& packed,
           const std::byte* from) const;

 private:
  std::int64_t per_key_head_ = 1;
  std::vector<std::size_t> tilings_;
  std::vector<KeyNeeds> positions_;  // by tiling
};

}  // namespace treadle::distributed
