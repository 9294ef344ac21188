// In: pieces, cut ones among them. Out: pieces without chunks as well. Read Joining::add() first.
#include "distributed/joining.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "distributed/work.h"

namespace treadle::distributed {
namespace {

using layout::Range;

// A cut piece's share of one batch entry and key head.
struct Cut {
  std::int64_t pass, leaf, b, head;
  const Piece* piece;

  [[nodiscard]] auto of() const { return std::tuple(pass, leaf, head, b); }
};

class Joining {
 public:
  Joining(const std::vector<layout::Tiles>& tiles, std::span<const std::int64_t> tiles_per_leaf,
          double share)
      : tiles_(tiles), tiles_per_leaf_(tiles_per_leaf), share_(share) {}

  // Of all pieces of a leaf, entry and head; the first of them has the first chunk. Who has it joins some tiles, and
  // others if many states meet, who are far from one another: near ones may join other heads.
  void add(std::span<const Cut> cuts) {
    const Cut& first = cuts.front();
    count_states(cuts);
    double all = 0;
    for (const double states : states_) all += states;
    ranks_.clear();
    for (const Cut& cut : cuts) ranks_.push_back(cut.piece->rank);
    std::ranges::sort(ranks_);
    const auto same = std::ranges::unique(ranks_);
    ranks_.erase(same.begin(), same.end());
    const auto start = static_cast<std::size_t>(
        std::ranges::lower_bound(ranks_, first.piece->rank) - ranks_.begin());
    const std::size_t most = std::min(ranks_.size(), states_.size());
    const std::size_t shares = std::clamp<std::size_t>(
        static_cast<std::size_t>(std::ceil(2 * all / std::max(share_, 1.0))), 1, most);

    const std::size_t before = joining_.size();
    double sum = 0;
    std::size_t begin = 0, number = 0;
    for (std::size_t tile = 0; tile < states_.size(); ++tile) {
      sum += states_[tile];
      const bool last = tile + 1 == states_.size();
      const bool full = number + 1 < shares &&
                        sum * static_cast<double>(shares) >= all * static_cast<double>(number + 1);
      if (!last && !full) continue;
      const std::size_t at = (start + number * ranks_.size() / shares) % ranks_.size();
      joining_.push_back({.rank = ranks_[at],
                          .pass = first.pass,
                          .leaves = {first.leaf, first.leaf + 1},
                          .batch = {first.b, first.b + 1},
                          .key_heads = {first.head, first.head + 1},
                          .chunks = {0, 0},
                          .tiles = {leaf_.begin + static_cast<std::int64_t>(begin),
                                    leaf_.begin + static_cast<std::int64_t>(tile) + 1}});
      begin = tile + 1;
      ++number;
    }
    join_entry(before);
  }

  [[nodiscard]] const std::vector<Piece>& pieces() const { return joining_; }

 private:
  // Rows of each tile, so many times as there are chunks apart from the first ones.
  void count_states(std::span<const Cut> cuts) {
    const auto pass = static_cast<std::size_t>(cuts.front().pass);
    const std::int64_t leaf = cuts.front().leaf;
    leaf_ = tiles_of({leaf, leaf + 1}, tiles_[pass].count(), tiles_per_leaf_[pass]);
    states_.assign(static_cast<std::size_t>(leaf_.count()), 0);
    for (const Cut& cut : cuts) {
      const Piece& piece = *cut.piece;
      if (piece.chunks.begin == 0) continue;
      for (std::int64_t tile = piece.tiles.begin; tile < piece.tiles.end; ++tile)
        states_[static_cast<std::size_t>(tile - leaf_.begin)] +=
            static_cast<double>(piece.chunks.count() * tiles_[pass].size(tile));
    }
  }

  // Those from here on are of one entry. If the entry before has the same ones, they are of both.
  void join_entry(std::size_t before) {
    const std::size_t count = joining_.size() - before, others = std::min(before - entry_, count);
    const bool alike =
        before - entry_ == count &&
        std::equal(joining_.begin() + static_cast<std::ptrdiff_t>(before), joining_.end(),
                   joining_.begin() + static_cast<std::ptrdiff_t>(before - others),
                   [](const Piece& one, const Piece& last) {
                     Piece longer = last;
                     longer.batch = one.batch;
                     return longer == one && last.batch.end == one.batch.begin;
                   });
    if (!alike) {
      entry_ = before;
      return;
    }
    for (std::size_t i = entry_; i < before; ++i) ++joining_[i].batch.end;
    joining_.resize(before);
  }

  const std::vector<layout::Tiles>& tiles_;
  std::span<const std::int64_t> tiles_per_leaf_;
  double share_;
  Range leaf_;                  // its tiles
  std::vector<double> states_;  // of each of them
  std::vector<int> ranks_;
  std::vector<Piece> joining_;
  std::size_t entry_ = 0;  // where those of the last entry begin
};

}  // namespace

double mean_rows(const PlanCall& call, int ranks) {
  return static_cast<double>(call.queries.count() * call.batch * call.key_heads) /
         static_cast<double>(ranks);
}

void add_joining(std::vector<Piece>& pieces, std::int64_t chunks,
                 const std::vector<layout::Tiles>& tiles,
                 std::span<const std::int64_t> tiles_per_leaf, double share) {
  std::vector<Cut> cuts;
  for (const Piece& piece : pieces) {
    if (piece.chunks.count() == chunks) continue;
    for (std::int64_t b = piece.batch.begin; b < piece.batch.end; ++b)
      for (std::int64_t head = piece.key_heads.begin; head < piece.key_heads.end; ++head)
        cuts.push_back({piece.pass, piece.leaves.begin, b, head, &piece});
  }
  std::ranges::sort(cuts, {}, [](const Cut& cut) {
    return std::tuple_cat(cut.of(), std::tuple(cut.piece->chunks.begin));
  });
  Joining joining(tiles, tiles_per_leaf, share);
  for (std::size_t begin = 0; begin < cuts.size();) {
    std::size_t end = begin + 1;
    while (end < cuts.size() && cuts[end].of() == cuts[begin].of()) ++end;
    joining.add(std::span(cuts).subspan(begin, end - begin));
    begin = end;
  }
  pieces.insert(pieces.end(), joining.pieces().begin(), joining.pieces().end());
}

}  // namespace treadle::distributed
