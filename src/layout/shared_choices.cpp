// The cheapest way to put terms into passes, by trying all: there are at most four.
#include "layout/shared_choices.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

namespace treadle::layout {
namespace {

using Candidates = std::span<const std::vector<Choice>>;  // of neighbouring terms

constexpr double never = std::numeric_limits<double>::infinity();

// What costs so many columns per tile, for all tiles of a choice.
double per_tiles(double columns, const Choice& choice, const Extent& extent,
                 const TileWeights& weights) {
  const auto queries = static_cast<double>(extent.queries.count());
  return queries / static_cast<double>(choice.height) * columns * weights.weight.front();
}

double cost_apart(Candidates terms, const Extent& extent, const TileWeights& weights) {
  double cost = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const Choice& best = terms[i].front();
    cost += best.cost;
    if (i + 1 < terms.size()) cost += per_tiles(weights.per_pass, best, extent, weights);
  }
  return cost;
}

// One pass with the candidate that is cheapest for all these terms together.
SharedPass best_for(Candidates terms, const Extent& extent, const TileWeights& weights) {
  SharedPass best{.terms = {}, .cost = never, .apart = cost_apart(terms, extent, weights)};
  for (const Choice& candidate : terms.front()) {
    SharedPass pass{.terms = {candidate}, .cost = candidate.cost, .apart = best.apart};
    for (const std::vector<Choice>& term : terms.subspan(1)) {
      const auto same = std::ranges::find_if(
          term, [&](const Choice& other) { return share_a_pass(candidate, other); });
      if (same == term.end()) {
        pass.cost = never;
        break;
      }
      // Queries are read and results written once, not for each term.
      pass.cost += same->cost - per_tiles(weights.per_tile, candidate, extent, weights);
      pass.terms.push_back(*same);
    }
    if (pass.cost < best.cost) best = std::move(pass);
  }
  return best;
}

}  // namespace

bool share_a_pass(const Choice& term, const Choice& next) {
  return term.order == next.order && term.height == next.height;
}

bool share_a_pass(const Tiles& term, const Tiles& next) {
  return share_a_pass(Choice{term.order(), term.height()}, Choice{next.order(), next.height()});
}

std::vector<SharedPass> shared_choices(const std::vector<std::vector<Choice>>& candidates,
                                       const Extent& extent, const TileWeights& weights) {
  const Candidates all = candidates;
  std::vector<SharedPass> best;
  double least = never;
  // Bit i: term i + 1 begins a pass of its own.
  for (std::size_t borders = 0; borders < std::size_t{1} << (all.size() - 1); ++borders) {
    std::vector<SharedPass> passes;
    double cost = 0;
    for (std::size_t first = 0; first < all.size();) {
      std::size_t end = first + 1;
      while (end < all.size() && (borders >> (end - 1) & 1) == 0) ++end;
      SharedPass pass = best_for(all.subspan(first, end - first), extent, weights);
      cost += pass.cost;
      if (pass.cost == never) break;
      if (end < all.size())
        cost += per_tiles(weights.per_pass, pass.terms.front(), extent, weights);
      passes.push_back(std::move(pass));
      first = end;
    }
    if (cost < least) {
      least = cost;
      best = std::move(passes);
    }
  }
  return best;
}

}  // namespace treadle::layout
