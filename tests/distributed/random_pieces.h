// A random division of all work among ranks: every leaf, batch entry, key head and chunk once, and every tile of cut
// leaves once to be joined.
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
    held_ = &held;
    for (std::size_t pass = 0; pass < held.passes.size(); ++pass)
      divide({0, static_cast<std::int64_t>(pass), held.passes[pass].leaves(), held.sizes.batch,
              held.sizes.key_heads, chunks});
    add_joining(chunks);
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

  // Those of a first piece's heads and entries together or one by one, whatever else may not be divided, leaf by leaf.
  void add_joining(layout::Range chunks) {
    std::vector<distributed::Piece> first;
    for (const distributed::Piece& piece : pieces_)
      if (piece.chunks != chunks && piece.chunks.begin == chunks.begin) first.push_back(piece);
    std::vector<distributed::Piece> apart;
    for (distributed::Piece piece : first) {
      if (pick(2) == 0) {
        apart.push_back(piece);
        continue;
      }
      const layout::Range batch = piece.batch, heads = piece.key_heads;
      for (std::int64_t b = batch.begin; b < batch.end; ++b) {
        for (std::int64_t h = heads.begin; h < heads.end; ++h) {
          piece.batch = {b, b + 1};
          piece.key_heads = {h, h + 1};
          apart.push_back(piece);
        }
      }
    }
    for (distributed::Piece piece : apart) {
      const distributed::PassPlan& pass = held_->passes[static_cast<std::size_t>(piece.pass)];
      const layout::Range leaves = piece.leaves;
      piece.chunks = {};
      for (std::int64_t leaf = leaves.begin; leaf < leaves.end; ++leaf) {
        const std::int64_t end = std::min((leaf + 1) * pass.tiles_per_leaf, pass.tiles.count());
        piece.leaves = {leaf, leaf + 1};
        for (std::int64_t tile = leaf * pass.tiles_per_leaf; tile < end; tile = piece.tiles.end) {
          piece.tiles = {tile, tile + 1 + pick(end - tile)};
          piece.rank = static_cast<int>(pick(ranks_));
          pieces_.push_back(piece);
        }
      }
    }
  }

  const distributed::Plan::Held* held_ = nullptr;
  std::mt19937_64& random_;
  std::int64_t ranks_;
  MayDivide may_;
  std::vector<distributed::Piece> pieces_;
};

}  // namespace treadle::test
