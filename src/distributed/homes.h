// Homes: which ranks have the queries of each leaf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "layout/order.h"
#include "treadle/distributed.h"

namespace treadle::distributed {

// So many queries of a leaf, or keys of a chunk, that a rank has.
struct RowsOfRank {
  int rank = 0;
  std::int64_t rows = 0;
};

// Who has the queries of some tiles; ranks ascend.
std::vector<RowsOfRank> rows_of(const layout::Tiles& tiles, layout::Range some,
                                const Shards& shards);

class Homes {
 public:
  Homes(const layout::Tiles& tiles, std::int64_t tiles_per_leaf, const Shards& shards);

  [[nodiscard]] std::int64_t leaves() const { return std::ssize(first_) - 1; }
  // Ranks ascend.
  [[nodiscard]] std::span<const RowsOfRank> of(std::int64_t leaf) const {
    const auto at = static_cast<std::size_t>(leaf);
    return std::span(rows_).subspan(first_[at], first_[at + 1] - first_[at]);
  }

 private:
  std::vector<std::size_t> first_{0};  // where each leaf begins in rows_; one more at the end
  std::vector<RowsOfRank> rows_;
};

// By pass: the first one that has the same leaves.
std::vector<std::size_t> tilings_of(const std::vector<layout::Tiles>& tiles,
                                    std::span<const std::int64_t> tiles_per_leaf);

// The part, of so many neighbouring ranks each, that has at least half of the rows; -1 for none.
int home_part(std::span<const RowsOfRank> rows, int ranks_per_part);

}  // namespace treadle::distributed
