// Looks at head groups and routes, and takes what costs least. Read assign() first.
#include "distributed/assignment.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "distributed/deal.h"
#include "distributed/homes.h"
#include "distributed/joining.h"
#include "distributed/traffic_model.h"
#include "plan/chunks.h"

namespace treadle::distributed {
namespace {

using layout::Range;

// Those that can be: divisors of both, in powers of two, or what the caller wants.
std::vector<int> group_counts(const PlanCall& call, int ranks, int wanted) {
  const auto divides = [&](int groups) {
    return ranks % groups == 0 && call.key_heads % groups == 0 &&
           (groups == 1 || call.divisible.heads);
  };
  if (wanted != 0) {
    if (wanted < 0 || !divides(wanted))
      base::fail(
          "plan: {} head groups of {} key heads on {} ranks; they must divide both{}", wanted,
          call.key_heads, ranks,
          call.divisible.heads ? "" : ", and gradients of captures that heads share need one");
    return {wanted};
  }
  std::vector<int> counts;
  for (int groups = 1; groups <= ranks && groups <= call.key_heads; groups *= 2)
    if (divides(groups)) counts.push_back(groups);
  return counts;
}

// Neighbouring leaves that are divided in the same way are one piece.
void join(std::vector<Piece>& pieces, std::int64_t chunks) {
  const auto key = [](const Piece& piece) {
    return std::tuple(piece.rank, piece.pass, piece.batch.begin, piece.batch.end,
                      piece.key_heads.begin, piece.key_heads.end, piece.chunks.begin,
                      piece.chunks.end);
  };
  const auto order = [](const Piece& piece) {
    return std::tuple(piece.rank, piece.pass, piece.leaves.begin, piece.batch.begin,
                      piece.key_heads.begin, piece.chunks.begin);
  };
  std::ranges::sort(pieces, {}, [&](const Piece& piece) {
    return std::tuple_cat(key(piece), std::tuple(piece.leaves.begin));
  });
  std::vector<Piece> joined;
  for (const Piece& piece : pieces) {
    if (!joined.empty() && key(joined.back()) == key(piece) && piece.chunks.count() == chunks &&
        joined.back().leaves.end == piece.leaves.begin) {
      joined.back().leaves.end = piece.leaves.end;
    } else {
      joined.push_back(piece);
    }
  }
  // And then heads that have the same leaves and chunks.
  std::ranges::sort(joined, {}, [](const Piece& piece) {
    return std::tuple(piece.rank, piece.pass, piece.leaves.begin, piece.leaves.end,
                      piece.chunks.begin, piece.chunks.end, piece.batch.begin, piece.batch.end,
                      piece.key_heads.begin);
  });
  pieces.clear();
  for (const Piece& piece : joined) {
    if (!pieces.empty()) {
      Piece& last = pieces.back();
      Piece longer = last;
      longer.key_heads.end = piece.key_heads.end;
      Piece here = piece;
      here.key_heads.begin = last.key_heads.begin;
      if (longer == here && last.key_heads.end == piece.key_heads.begin) {
        last = longer;
        continue;
      }
    }
    pieces.push_back(piece);
  }
  std::ranges::sort(pieces, {}, order);
}

void add_tiles(std::vector<Piece>& pieces, const Problem& problem) {
  const std::int64_t chunks = plan::chunks_of(problem.call.keys).count();
  for (Piece& piece : pieces) {
    const auto pass = static_cast<std::size_t>(piece.pass);
    piece.tiles =
        tiles_of(piece.leaves, problem.tiles[pass].count(), problem.call.tiles_per_leaf[pass]);
    if (piece.chunks.count() == chunks || piece.chunks.begin == 0) continue;
    const PassWork& work = problem.passes[pass];
    Range seen{piece.tiles.count(), 0};
    for (std::int64_t b = piece.batch.begin; b < piece.batch.end; ++b) {
      for (std::int64_t h = piece.key_heads.begin; h < piece.key_heads.end; ++h) {
        const auto of_chunks = work.tiles_of(work.list(piece.leaves.begin, b, h));
        for (std::int64_t chunk = piece.chunks.begin; chunk < piece.chunks.end; ++chunk) {
          const PassWork::TileSpan& span = of_chunks[static_cast<std::size_t>(chunk)];
          if (span.begin == span.end) continue;
          seen.begin = std::min<std::int64_t>(seen.begin, span.begin);
          seen.end = std::max<std::int64_t>(seen.end, span.end);
        }
      }
    }
    if (seen.empty()) seen = {0, 0};
    // Sums over queries go through the tiles of half a leaf at once (plan::tiles_per_leaf), so it begins with one.
    const std::int64_t half = std::max<std::int64_t>(problem.call.tiles_per_leaf[pass] / 2, 1);
    seen.begin -= seen.begin % half;
    piece.tiles = {piece.tiles.begin + seen.begin, piece.tiles.begin + seen.end};
  }
}

class Planner {
 public:
  explicit Planner(const Problem& problem)
      : problem_(problem), chunks_(plan::chunks_of(problem.call.keys)) {
    for (std::int64_t chunk = chunks_.begin; chunk < chunks_.end; ++chunk) {
      const Range keys = plan::keys_of_chunk(chunk);
      std::vector<int>& ranks = ranks_of_chunk_.emplace_back();
      for (int rank = 0; rank < problem.ranks(); ++rank) {
        const bool has = std::max(keys.begin, problem.keys.begin(rank)) <
                         std::min(keys.end, problem.keys.end(rank));
        if (has) ranks.push_back(rank);
      }
    }
  }

  [[nodiscard]] std::vector<Piece> pieces(int groups, Route route) const;

 private:
  const Problem& problem_;
  Range chunks_;
  std::vector<std::vector<int>> ranks_of_chunk_;
};

std::vector<Piece> Planner::pieces(int groups, Route route) const {
  std::vector<std::vector<int>> homes(problem_.passes.size());
  for (std::size_t pass = 0; pass < homes.size(); ++pass)
    for (std::int64_t leaf = 0; leaf < problem_.passes[pass].leaves; ++leaf)
      homes[pass].push_back(home_part(problem_.homes[pass].of(leaf), groups));
  std::vector<std::vector<int>> parts_of_chunk;
  for (const std::vector<int>& ranks : ranks_of_chunk_) {
    std::vector<int>& parts = parts_of_chunk.emplace_back();
    for (const int rank : ranks)
      if (parts.empty() || parts.back() != rank / groups) parts.push_back(rank / groups);
  }
  const std::int64_t heads = problem_.call.key_heads / groups;
  const PlanCall& call = problem_.call;
  const double state_in_keys =
      static_cast<double>((call.value_dim + state_numbers) * state_bytes) /
      static_cast<double>(call.dim * call.key_bytes + call.value_dim * call.value_bytes);
  std::vector<double> pairs_of_states;
  for (std::size_t pass = 0; pass < problem_.passes.size(); ++pass)
    pairs_of_states.push_back(static_cast<double>(problem_.tiles[pass].height() *
                                                  call.tiles_per_leaf[pass] * call.per_key_head) *
                              pairs_of_state(call, problem_.options));
  std::vector<Piece> pieces;
  for (int group = 0; group < groups; ++group) {
    const Range own{group * heads, (group + 1) * heads};
    if (group == 0 || !problem_.costs.heads_alike()) {
      const std::size_t before = pieces.size();
      const int parts = problem_.ranks() / groups;
      for (const Share& share :
           deal({problem_.costs, own, parts, homes, parts_of_chunk, state_in_keys, chunks_,
                 pairs_of_states, problem_.call.divisible},
                route, problem_.options.excess)) {
        const Box& box = share.box;
        pieces.push_back({share.part * groups + group,
                          box.pass,
                          {box.leaf, box.leaf + 1},
                          box.batch,
                          box.key_heads,
                          box.chunks});
      }
      std::vector<Piece> some(pieces.begin() + static_cast<std::ptrdiff_t>(before), pieces.end());
      join(some, chunks_.count());
      add_tiles(some, problem_);
      add_joining(some, chunks_.count(), problem_.tiles, call.tiles_per_leaf,
                  mean_rows(call, problem_.ranks()));
      pieces.resize(before);
      pieces.insert(pieces.end(), some.begin(), some.end());
      continue;
    }
    // The same as the first group's.
    const auto count = static_cast<std::ptrdiff_t>(pieces.size()) / group;
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      Piece piece = pieces[static_cast<std::size_t>(i)];
      piece.rank += group;
      piece.key_heads = {piece.key_heads.begin + own.begin, piece.key_heads.end + own.begin};
      pieces.push_back(piece);
    }
  }
  std::ranges::stable_sort(pieces, {}, [](const Piece& piece) {
    return std::tuple(piece.rank, piece.pass, piece.leaves.begin);
  });
  return pieces;
}

// One rank has everything, a pass at a time.
std::vector<Piece> all_of(const Problem& problem) {
  std::vector<Piece> pieces;
  for (std::size_t pass = 0; pass < problem.passes.size(); ++pass) {
    const PassWork& work = problem.passes[pass];
    if (work.leaves > 0)
      pieces.push_back({0, static_cast<std::int64_t>(pass), work.leaves, problem.call.batch,
                        problem.call.key_heads, plan::chunks_of(problem.call.keys).count()});
  }
  return pieces;
}

}  // namespace

std::string_view name_of(Route route) {
  switch (route) {
    case Route::transport: return "transport";
    case Route::stream: return "stream";
  }
  return "?";
}

Assignment assign(const PlanCall& call, std::span<const PassWork> passes,
                  const std::vector<layout::Tiles>& tiles, const Shards& queries,
                  const Shards& keys, const PlanOptions& options) {
  std::vector<Homes> homes;
  for (std::size_t pass = 0; pass < passes.size(); ++pass)
    homes.emplace_back(tiles[pass], call.tiles_per_leaf[pass], queries);
  const Costs costs(passes, call.batch, call.key_heads);
  const Problem problem{call,    passes, costs,
                        tiles,   homes,  tilings_of(tiles, call.tiles_per_leaf),
                        queries, keys,   options};
  const Planner planner(problem);

  struct Looked {
    std::vector<Piece> pieces;
    Modelled modelled;
  };
  std::vector<Looked> looked;
  for (const int groups : group_counts(call, problem.ranks(), options.head_groups)) {
    for (const Route route : {Route::transport, Route::stream}) {
      if (problem.ranks() == 1 && route == Route::stream) continue;
      Looked one;
      if (problem.ranks() == 1) {
        one.pieces = all_of(problem);
        add_tiles(one.pieces, problem);
      } else {
        one.pieces = planner.pieces(groups, route);
      }
      one.modelled = model(problem, one.pieces, groups);
      one.modelled.candidate.head_groups = groups;
      one.modelled.candidate.route = route;
      looked.push_back(std::move(one));
    }
  }
  std::ranges::stable_sort(looked, {},
                           [](const Looked& one) { return one.modelled.candidate.seconds(); });
  // A model cannot tell times apart that are as close as loads may be. Bytes can.
  const double close = looked.front().modelled.candidate.seconds() * (1 + options.excess);
  const auto last = std::ranges::find_if(
      looked, [&](const Looked& one) { return one.modelled.candidate.seconds() > close; });
  const auto fewest = std::min_element(looked.begin(), last, [&](const Looked& a, const Looked& b) {
    // As long as loads are as close as they should be.
    const auto uneven = [&](const Candidate& c) { return c.balance > 1 + 1.5 * options.excess; };
    const auto bytes = [](const Candidate& c) {
      return std::max(c.forward_bytes, c.forward_sent) +
             std::max(c.backward_bytes, c.backward_sent);
    };
    const Candidate &one = a.modelled.candidate, &other = b.modelled.candidate;
    return std::tuple(uneven(one), bytes(one)) < std::tuple(uneven(other), bytes(other));
  });
  std::rotate(looked.begin(), fewest, fewest + 1);
  Assignment taken;
  for (const Looked& one : looked) taken.candidates.push_back(one.modelled.candidate);
  Looked& best = looked.front();
  taken.pieces = std::move(best.pieces);
  taken.pairs = std::move(best.modelled.pairs);
  taken.forward = std::move(best.modelled.forward);
  taken.backward = std::move(best.modelled.backward);
  taken.memory = std::move(best.modelled.memory);
  taken.all_gather = call.key_batch * call.key_heads * call.keys.count() *
                     (call.dim * call.key_bytes + call.value_dim * call.value_bytes);
  return taken;
}

std::span<const Piece> Assignment::of(int rank) const {
  const auto some = std::ranges::equal_range(pieces, rank, {}, &Piece::rank);
  return {some.begin(), some.end()};
}

std::string Assignment::describe() const {
  const auto mega = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  const auto share = [&](std::int64_t bytes) {
    return all_gather == 0 ? 0.0 : static_cast<double>(bytes) / static_cast<double>(all_gather);
  };
  const auto name = [](const Candidate& c) {
    return fmt::format("{} head group{}, {}", c.head_groups, c.head_groups == 1 ? "" : "s",
                       name_of(c.route));
  };
  std::string text =
      fmt::format("{:<11}  {:<9}  {:>7}  {:>12}  {:>12}  {:>8}  {:>9}  {:>10}  {:>11}  {:>11}\n",
                  "head groups", "route", "balance", "forward MB", "backward MB", "messages",
                  "memory MB", "forward ms", "backward ms", "together ms");
  for (const Candidate& c : candidates)
    text += fmt::format(
        "{:<11}  {:<9}  {:>7.3f}  {:>12.2f}  {:>12.2f}  {:>8}  {:>9.2f}  {:>10.2f}  {:>11.2f}  "
        "{:>11.2f}\n",
        c.head_groups, name_of(c.route), c.balance, mega(c.forward_bytes), mega(c.backward_bytes),
        c.messages, mega(c.memory), c.forward * 1e3, c.backward * 1e3, c.seconds() * 1e3);
  const Candidate& c = taken();
  text += fmt::format(
      "taken: {}: balance {:.3f}, {:.4f} of an all-gather forward, {:.4f} backward, {} messages\n",
      name(c), c.balance, share(c.forward_bytes), share(c.backward_bytes), c.messages);
  if (candidates.size() < 2) return text;
  const auto fastest = std::ranges::min_element(candidates, {}, &Candidate::seconds);
  if (fastest != candidates.begin())
    return text + fmt::format("about as fast as {}, with fewer bytes\n", name(*fastest));
  const Candidate& next = candidates[1];
  return text + fmt::format("next: {}, {:.2f} times the time\n", name(next),
                            c.seconds() > 0 ? next.seconds() / c.seconds() : 1.0);
}

}  // namespace treadle::distributed
