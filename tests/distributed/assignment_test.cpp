// Who computes what: every bit of work once, evenly, the same on all ranks.
#include "distributed/assignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "expect_error.h"
#include "fuzz.h"
#include "plan/chunks.h"

namespace treadle::distributed {
namespace {

using layout::Order;
using layout::Range;
using layout::Run;
using layout::Tiles;

std::int64_t pick(std::mt19937_64& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

struct Case {
  PlanCall call;
  std::vector<Tiles> tiles;
  std::vector<PassWork> passes;
  Shards queries, keys;
  PlanOptions options;

  [[nodiscard]] Assignment assigned() const {
    return assign(call, passes, tiles, queries, keys, options);
  }
};

// Of any sizes, some of them empty.
Shards random_shards(std::mt19937_64& random, std::int64_t length, int ranks) {
  if (pick(random, 0, 2) == 0) return Shards::even(length, ranks);
  Shards shards;
  shards.starts.push_back(0);
  for (int r = 1; r < ranks; ++r) shards.starts.push_back(pick(random, 0, length));
  shards.starts.push_back(length);
  std::ranges::sort(shards.starts);
  return shards;
}

PassWork random_work(std::mt19937_64& random, const PlanCall& call, std::int64_t leaves) {
  PassWork work{.leaves = leaves, .chunks = plan::chunks_of(call.keys).count()};
  if (pick(random, 0, 3) == 0) work.batch_lists = call.batch;
  if (pick(random, 0, 3) == 0) work.head_lists = call.key_heads;
  const std::int64_t kind = pick(random, 0, 3);
  for (std::int64_t list = 0; list < leaves * work.batch_lists * work.head_lists; ++list) {
    // Everything, a stretch of chunks, a few, now and then a heavy one.
    const std::int64_t first = kind == 0 ? 0 : pick(random, 0, work.chunks);
    const std::int64_t count = pick(random, 0, work.chunks - first);
    std::vector<Run>& runs = work.keys.emplace_back();
    for (std::int64_t chunk = 0; chunk < work.chunks; ++chunk) {
      const bool seen = chunk >= first && chunk < first + count && pick(random, 0, 9) >= kind;
      const std::int64_t most = kind == 3 && pick(random, 0, 40) == 0 ? 1'000'000 : 1000;
      work.pairs.push_back(seen ? pick(random, 1, most) : 0);
      work.tiles.push_back({0, static_cast<std::uint16_t>(seen ? 1 : 0)});
      const Range keys = plan::keys_of_chunk(chunk);
      const std::int64_t end = std::min(keys.end, call.keys.end);
      if (seen) runs.emplace_back(keys.begin, pick(random, keys.begin + 1, end), false);
    }
  }
  return work;
}

Case random_case(std::mt19937_64& random) {
  Case made;
  const int ranks = static_cast<int>(pick(random, 1, 64));
  made.call.batch = pick(random, 1, 3);
  made.call.key_batch = made.call.batch;
  made.call.key_heads = pick(random, 1, 8);
  made.call.per_key_head = pick(random, 1, 4);
  made.call.queries = pick(random, 0, 20) == 0 ? 0 : pick(random, 1, 4000);
  made.call.keys = pick(random, 1, 100'000);
  const std::int64_t passes = pick(random, 1, 2);
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    Order order;
    if (pick(random, 0, 1) == 1) order = {Order::Kind::residue, pick(random, 2, 64)};
    made.tiles.emplace_back(order, made.call.queries, pick(random, 1, 48));
    made.call.tiles_per_leaf.push_back(pick(random, 1, 8));
    made.passes.push_back(random_work(
        random, made.call, leaves_of(made.tiles.back().count(), made.call.tiles_per_leaf.back())));
  }
  made.queries = random_shards(random, made.call.queries.count(), ranks);
  made.keys = random_shards(random, made.call.keys.count(), ranks);
  made.options.excess = pick(random, 0, 1) == 0 ? 0.02 : 0.1;
  if (pick(random, 0, 3) == 0) made.options.sums = Sums::per_rank;
  return made;
}

void expect_all_once(const Case& of, const Assignment& assigned) {
  const PlanCall& call = of.call;
  const int ranks = of.keys.ranks(), groups = assigned.taken().head_groups;
  ASSERT_EQ(ranks % groups, 0);
  ASSERT_EQ(call.key_heads % groups, 0);
  std::vector<double> pairs(static_cast<std::size_t>(ranks));
  int last_rank = 0;
  for (std::size_t pass = 0; pass < of.passes.size(); ++pass) {
    const PassWork& work = of.passes[pass];
    const auto at = [&](std::int64_t leaf, std::int64_t b, std::int64_t head, std::int64_t chunk) {
      return static_cast<std::size_t>(
          ((leaf * call.batch + b) * call.key_heads + head) * work.chunks + chunk);
    };
    std::vector<int> times(at(work.leaves, 0, 0, 0));
    for (const Piece& piece : assigned.pieces) {
      if (piece.pass != static_cast<std::int64_t>(pass)) continue;
      ASSERT_FALSE(piece.leaves.empty() || piece.batch.empty() || piece.key_heads.empty());
      ASSERT_LE(piece.leaves.end, work.leaves);
      ASSERT_LE(piece.batch.end, call.batch);
      ASSERT_LE(piece.chunks.end, work.chunks);
      const std::int64_t heads = call.key_heads / groups, group = piece.rank % groups;
      ASSERT_GE(piece.key_heads.begin, group * heads);
      ASSERT_LE(piece.key_heads.end, (group + 1) * heads);
      for (std::int64_t leaf = piece.leaves.begin; leaf < piece.leaves.end; ++leaf) {
        for (std::int64_t b = piece.batch.begin; b < piece.batch.end; ++b) {
          for (std::int64_t h = piece.key_heads.begin; h < piece.key_heads.end; ++h) {
            for (std::int64_t c = piece.chunks.begin; c < piece.chunks.end; ++c) {
              ++times[at(leaf, b, h, c)];
              pairs[static_cast<std::size_t>(piece.rank)] += static_cast<double>(
                  work.pairs_of(work.list(leaf, b, h))[static_cast<std::size_t>(c)]);
            }
          }
        }
      }
    }
    for (std::int64_t leaf = 0; leaf < work.leaves; ++leaf) {
      for (std::int64_t b = 0; b < call.batch; ++b) {
        for (std::int64_t h = 0; h < call.key_heads; ++h) {
          const auto of_chunks = work.pairs_of(work.list(leaf, b, h));
          for (std::int64_t c = 0; c < work.chunks; ++c) {
            const int count = times[at(leaf, b, h, c)];
            ASSERT_LE(count, 1) << "pass " << pass << " leaf " << leaf << " chunk " << c;
            if (c == 0 || of_chunks[static_cast<std::size_t>(c)] > 0) {
              ASSERT_EQ(count, 1) << "pass " << pass << " leaf " << leaf << " chunk " << c;
            }
          }
        }
      }
    }
  }
  for (const Piece& piece : assigned.pieces) {
    ASSERT_GE(piece.rank, last_rank);
    last_rank = piece.rank;
  }
  ASSERT_LT(last_rank, ranks);
  std::size_t pieces = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(assigned.pairs[static_cast<std::size_t>(rank)],
              pairs[static_cast<std::size_t>(rank)]);
    pieces += assigned.of(rank).size();
  }
  EXPECT_EQ(pieces, assigned.pieces.size());
}

void expect_sound(const Assignment& assigned, int ranks) {
  for (const auto* traffic : {&assigned.forward, &assigned.backward}) {
    std::int64_t sent = 0, received = 0;
    for (const Traffic& of_rank : *traffic) {
      EXPECT_GE(of_rank.sent, -1);
      EXPECT_GE(of_rank.received, -1);
      // Rows and keys, states to who joins them, results.
      EXPECT_LE(of_rank.messages, 3 * (ranks - 1));
      sent += of_rank.sent;
      received += of_rank.received;
    }
    EXPECT_NEAR(static_cast<double>(sent), static_cast<double>(received),
                1000 + 1e-6 * static_cast<double>(sent));
  }
}

TEST(Assignment, HasAllWorkOnce) {
  int cut = 0;
  for (int round = 0; round < test::fuzz_count(600); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    Case made = random_case(random);
    const Assignment assigned = made.assigned();
    expect_all_once(made, assigned);
    expect_sound(assigned, made.keys.ranks());
    for (const Piece& piece : assigned.pieces)
      cut += piece.chunks.count() < made.passes[0].chunks ? 1 : 0;
    // Every candidate, not only the one that was taken.
    for (const Candidate& candidate : assigned.candidates) {
      made.options.head_groups = candidate.head_groups;
      const Assignment one = made.assigned();
      EXPECT_EQ(one.taken().head_groups, candidate.head_groups);
      expect_all_once(made, one);
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(cut, test::fuzz_at_least(400));
}

TEST(Assignment, IsTheSameOnAllRanks) {
  for (int round = 0; round < test::fuzz_count(200); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    Case made = random_case(random);
    const Assignment one = made.assigned();
    for (PassWork& work : made.passes) work = PassWork::from_bytes(work.to_bytes());
    const Assignment other = made.assigned();
    EXPECT_EQ(one.pieces, other.pieces);
    EXPECT_EQ(one.candidates, other.candidates);
    EXPECT_EQ(one.describe(), other.describe());
  }
}

TEST(Assignment, OneRankHasAPieceForEachPass) {
  std::mt19937_64 random = test::rng(1);
  Case made = random_case(random);
  made.queries = Shards::even(made.call.queries.count(), 1);
  made.keys = Shards::even(made.call.keys.count(), 1);
  const Assignment assigned = made.assigned();
  ASSERT_EQ(assigned.pieces.size(), made.passes.size());
  for (std::size_t pass = 0; pass < made.passes.size(); ++pass) {
    const Piece all{.rank = 0,
                    .pass = static_cast<std::int64_t>(pass),
                    .leaves = made.passes[pass].leaves,
                    .batch = made.call.batch,
                    .key_heads = made.call.key_heads,
                    .chunks = made.passes[pass].chunks,
                    .tiles = made.tiles[pass].count()};
    EXPECT_EQ(assigned.pieces[pass], all);
  }
  EXPECT_EQ(assigned.taken().balance, 1);
  EXPECT_EQ(assigned.forward[0], Traffic{});
  EXPECT_EQ(assigned.backward[0], Traffic{});
}

TEST(Assignment, HeadGroupsDivide) {
  std::mt19937_64 random = test::rng(1);
  Case made = random_case(random);
  made.call.key_heads = 8;
  made.call.batch = made.call.key_batch = 1;
  for (std::size_t pass = 0; pass < made.passes.size(); ++pass) {
    PassWork& work = made.passes[pass];
    do {
      work = random_work(random, made.call, work.leaves);
    } while (work.head_lists > 1);
  }
  made.queries = Shards::even(made.call.queries.count(), 6);
  made.keys = Shards::even(made.call.keys.count(), 6);
  for (const Candidate& candidate : made.assigned().candidates) EXPECT_LE(candidate.head_groups, 2);
  made.options.head_groups = 4;
  EXPECT_ERROR(made.assigned(),
               "plan: 4 head groups of 8 key heads on 6 ranks; they must divide both");
}

}  // namespace
}  // namespace treadle::distributed
