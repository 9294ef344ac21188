// The cheapest way to put terms into passes, by trying all: there are at most four.
#include "layout/shared_choices.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

namespace treadle::layout {
namespace {

// What costs so many columns per tile, for all tiles of a choice.
double per_tiles(double columns, const Choice& choice, const Extent& extent,
                 const TileWeights& weights) {
  const auto queries = static_cast<double>(extent.queries.count());
  return queries / static_cast<double>(choice.height) * columns * weights.weight.front();
}

struct Shared {
  Choice choice;
  double cost = std::numeric_limits<double>::infinity();
};

// The candidate that is cheapest for all these terms together.
Shared best_for(std::span<const std::vector<Choice>> terms, const Extent& extent,
                const TileWeights& weights) {
  Shared best;
  for (const Choice& candidate : terms.front()) {
    double sum = candidate.cost;
    for (const std::vector<Choice>& term : terms.subspan(1)) {
      const auto same = std::ranges::find_if(term, [&](const Choice& other) {
        return other.order == candidate.order && other.height == candidate.height;
      });
      // Queries are read and results written once, not for each term.
      sum += same == term.end()
                 ? std::numeric_limits<double>::infinity()
                 : same->cost - per_tiles(weights.per_tile, candidate, extent, weights);
    }
    if (sum < best.cost) best = {candidate, sum};
  }
  return best;
}

}  // namespace

std::vector<Choice> shared_choices(const std::vector<std::vector<Choice>>& candidates,
                                   const Extent& extent, const TileWeights& weights) {
  const std::span<const std::vector<Choice>> all = candidates;
  std::vector<Choice> best;
  double least = std::numeric_limits<double>::infinity();
  // Bit i: term i + 1 begins a pass of its own.
  for (std::size_t borders = 0; borders < std::size_t{1} << (all.size() - 1); ++borders) {
    std::vector<Choice> choices;
    double cost = 0;
    for (std::size_t first = 0; first < all.size();) {
      std::size_t end = first + 1;
      while (end < all.size() && (borders >> (end - 1) & 1) == 0) ++end;
      const Shared shared = best_for(all.subspan(first, end - first), extent, weights);
      cost += shared.cost;
      if (end < all.size()) cost += per_tiles(weights.per_pass, shared.choice, extent, weights);
      choices.insert(choices.end(), end - first, shared.choice);
      first = end;
    }
    if (cost < least) {
      least = cost;
      best = std::move(choices);
    }
  }
  return best;
}

}  // namespace treadle::layout
