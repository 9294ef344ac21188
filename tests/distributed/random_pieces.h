// A random division of all work among ranks: every leaf, batch entry, key head and chunk once.
#pragma once

#include <random>
#include <vector>

#include "distributed/held_plan.h"
#include "fuzz.h"
#include "plan/chunks.h"

namespace treadle::test {

struct MayDivide {
  bool heads = true, batch = true, chunks = true;
};

class RandomPieces {
 public:
  RandomPieces(std::mt19937_64& random, int ranks, const MayDivide& may)
      : random_(random), ranks_(ranks), may_(may) {}

  std::vector<distributed::Piece> make(const distributed::Plan::Held& held) {
    const layout::Range chunks = plan::chunks_of(held.sizes.keys);
    for (std::size_t pass = 0; pass < held.passes.size(); ++pass)
      divide({0, static_cast<std::int64_t>(pass), held.passes[pass].leaves(), held.sizes.batch,
              held.sizes.key_heads, chunks});
    std::ranges::stable_sort(pieces_, {}, &distributed::Piece::rank);
    return pieces_;
  }

 private:
  std::int64_t pick(std::int64_t most) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most));
  }

  void divide(distributed::Piece piece) {
    if (piece.leaves.empty()) return;
    using layout::Range;
    const auto cut = [&](Range distributed::Piece::* which) {
      Range& range = piece.*which;
      if (range.count() < 2) return false;
      const std::int64_t at = range.begin + 1 + pick(range.count() - 1);
      distributed::Piece other = piece;
      other.*which = {at, range.end};
      range.end = at;
      divide(piece);
      divide(other);
      return true;
    };
    if (pick(ranks_ + 3) != 0) {
      switch (pick(6)) {
        case 0:
          if (may_.heads && cut(&distributed::Piece::key_heads)) return;
          break;
        case 1:
          if (may_.batch && cut(&distributed::Piece::batch)) return;
          break;
        case 2:
          if (may_.chunks && cut(&distributed::Piece::chunks)) return;
          break;
        default:
          if (cut(&distributed::Piece::leaves)) return;
          break;
      }
    }
    piece.rank = static_cast<int>(pick(ranks_));
    pieces_.push_back(piece);
  }

  std::mt19937_64& random_;
  std::int64_t ranks_;
  MayDivide may_;
  std::vector<distributed::Piece> pieces_;
};

}  // namespace treadle::test
