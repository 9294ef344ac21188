// Keys that tiles want are joined without loss, and each tile finds its own in every block.
#include "run/blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "fuzz.h"
#include "run/wanted_keys.h"

namespace treadle::run {
namespace {

using Keys = std::map<std::int64_t, bool>;  // key -> whether its run is full

constexpr std::int64_t key_count = 300;

// Plain ones anywhere; or, for what residue classes and dilated windows look like, mostly steps of
// few kinds, so that those of several lists agree often.
std::vector<layout::Run> random_runs(std::mt19937_64& random) {
  const bool stepped = test::random_int(random, 0, 3) > 0;
  const std::int64_t phase = test::random_int(random, 0, 2);
  std::vector<layout::Run> runs;
  std::int64_t at = 0;
  while (true) {
    at += test::random_int(random, 0, 1) * test::random_int(random, 0, 30);
    const bool full = test::random_int(random, 0, 1) == 1;
    layout::Run run(at, at + test::random_int(random, 1, 40), full);
    if (stepped && test::random_int(random, 0, 4) > 0) {
      const std::int64_t step = test::random_int(random, 0, 5) == 0 ? 7 : 16;
      const std::int64_t width = test::random_int(random, 0, 2) == 0 ? 3 : 1;
      run = layout::Run::stepped(
          {(at + step - 1) / step * step + phase, width, step, test::random_int(random, 1, 9)},
          full);
    }
    if (run.end() > key_count) return runs;
    runs.push_back(run);
    at = run.end();
  }
}

Keys keys_of(const std::vector<layout::Run>& runs, std::int64_t begin, std::int64_t end) {
  Keys keys;
  layout::for_each_piece(runs, [&](layout::Range piece, bool full) {
    for (std::int64_t key = std::max(begin, piece.begin); key < std::min(end, piece.end); ++key)
      keys[key] = full;
  });
  return keys;
}

std::vector<std::int64_t> keys_of(std::span<const Segment> segments) {
  std::vector<std::int64_t> keys;
  for (const Segment& segment : segments) {
    for (const auto& [key, full] : keys_of({segment.keys}, 0, key_count)) keys.push_back(key);
  }
  return keys;
}

std::size_t pieces_of(std::span<const layout::Run> runs) {
  std::size_t pieces = 0;
  for (const layout::Run& run : runs) pieces += static_cast<std::size_t>(run.count());
  return pieces;
}

TEST(Blocks, WantedKeysAreThoseOfTheRunsInside) {
  for (int round = 0; round < test::fuzz_count(2000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    const std::int64_t begin = test::random_int(random, 0, 200);
    const std::int64_t end = test::random_int(random, begin, key_count);
    std::vector<std::vector<layout::Run>> tiles(
        static_cast<std::size_t>(test::random_int(random, 1, 4)));
    std::size_t pieces = 0;
    for (std::vector<layout::Run>& runs : tiles) {
      runs = random_runs(random);
      pieces += pieces_of(runs);
    }
    WantedKeys wanted;
    wanted.reserve(pieces);
    std::set<const layout::Run*> memory;
    std::set<std::int64_t> expected;
    for (const std::vector<layout::Run>& runs : tiles) {
      const Keys inside = keys_of(runs, begin, end);
      EXPECT_EQ(reaches(runs, {begin, end}), !inside.empty());
      EXPECT_EQ(count_inside(runs, {begin, end}), static_cast<std::int64_t>(inside.size()));
      for (const auto& [key, full] : inside) expected.insert(key);
      wanted.add(runs, {begin, end});
      memory.insert(wanted.runs().data());
    }
    EXPECT_LE(memory.size(), 2u) << "lists that took turns have grown";
    EXPECT_EQ(wanted.count(), static_cast<std::int64_t>(expected.size()));
    std::int64_t last = 0;
    for (const layout::Run& run : wanted.runs()) {
      EXPECT_GT(run.length(), 0);
      EXPECT_GE(run.begin(), last) << "runs ascend and do not overlap";
      last = run.end();
    }
    std::vector<std::int64_t> keys;
    layout::for_each_piece(wanted.runs(), [&](layout::Range piece, bool) {
      for (std::int64_t key = piece.begin; key < piece.end; ++key) keys.push_back(key);
    });
    EXPECT_THAT(keys, testing::ElementsAreArray(expected));
  }
}

TEST(Blocks, NothingWanted) {
  WantedKeys wanted;
  wanted.add({}, {0, 100});
  const std::vector<layout::Run> runs{{10, 20, true}, {30, 40, false}};
  wanted.add(runs, {20, 30});
  wanted.add(runs, {40, 1000});
  const std::vector<layout::Run> sparse{layout::Run::stepped({0, 1, 100, 3}, true)};
  wanted.add(sparse, {1, 100});
  EXPECT_TRUE(wanted.runs().empty());
  EXPECT_EQ(wanted.count(), 0);
  EXPECT_FALSE(reaches(sparse, {101, 200}));
}

// Tiles of one residue class, whatever part of it each of them looks at.
TEST(Blocks, ClassesAreJoinedAsAWhole) {
  WantedKeys wanted;
  const std::vector<layout::Run> all{layout::Run::stepped({5, 2, 128, 512}, true)};
  const std::vector<layout::Run> some{layout::Run::stepped({5, 2, 128, 100}, true),
                                      layout::Run::stepped({5 + 100 * 128, 2, 128, 48}, false)};
  for (int i = 0; i < 3; ++i) {
    wanted.add(all, {1024, 65536});
    wanted.add(some, {1024, 65536});
  }
  EXPECT_EQ(wanted.count(), 2 * 504);
  ASSERT_EQ(wanted.runs().size(), 1u);
  EXPECT_EQ(wanted.runs()[0], layout::Run::stepped({1029, 2, 128, 504}, false));
  std::vector<BlockRun> found;
  std::size_t next = 0;
  find_block_runs(found, std::vector<Segment>{{wanted.runs()[0]}}, some, next);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].end, 2 * 92);
  EXPECT_EQ(found[1].end, 2 * 140);
}

// Cuts what is wanted into blocks of so many keys, as KeyBlocks does.
std::vector<std::vector<Segment>> cut(std::span<const layout::Run> wanted,
                                      std::int64_t block_keys) {
  std::vector<std::vector<Segment>> blocks;
  std::int64_t room = 0;
  for (const layout::Run& keys : wanted) {
    for (std::int64_t piece = 0, done = 0; piece < keys.count();) {
      if (room == 0) {
        blocks.emplace_back();
        room = block_keys;
      }
      const std::int64_t whole = done > 0 ? 0 : std::min(room / keys.width(), keys.count() - piece);
      const std::int64_t begin = keys.piece(piece).begin + done;
      const std::int64_t part = std::min(room, keys.width() - done);
      const layout::Run taken =
          whole > 0 ? keys.pieces(piece, whole) : layout::Run(begin, begin + part, false);
      blocks.back().push_back({taken, block_keys - room});
      room -= taken.length();
      done = whole > 0 ? 0 : (done + part) % keys.width();
      piece += whole > 0 ? whole : (done == 0 ? 1 : 0);
    }
  }
  return blocks;
}

// Block after block, as a worker walks over them: every key of the runs is met once, in order, in a
// stretch of its kind.
TEST(Blocks, StretchesCoverTheRunsOnce) {
  for (int round = 0; round < test::fuzz_count(2000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    const std::vector<layout::Run> runs = random_runs(random);
    // Blocks hold the tile's keys and those of others.
    WantedKeys wanted;
    wanted.add(runs, key_count);
    if (test::random_int(random, 0, 3) > 0) wanted.add(random_runs(random), key_count);
    std::size_t next = 0;
    std::vector<std::pair<std::int64_t, bool>> met;
    for (const std::vector<Segment>& block : cut(wanted.runs(), test::random_int(random, 1, 70))) {
      const std::vector<std::int64_t> keys = keys_of(block);
      std::vector<BlockRun> stretches{{5, 6, true}};  // what was there goes
      find_block_runs(stretches, block, runs, next);
      std::int64_t end = -1;
      bool full = false;
      for (const BlockRun& stretch : stretches) {
        EXPECT_LT(stretch.begin, stretch.end);
        EXPECT_TRUE(stretch.begin > end || (stretch.begin == end && stretch.full != full));
        EXPECT_LE(stretch.end, static_cast<std::int64_t>(keys.size()));
        end = stretch.end;
        full = stretch.full;
        for (std::int64_t at = stretch.begin; at < stretch.end; ++at)
          met.emplace_back(keys[static_cast<std::size_t>(at)], stretch.full);
      }
    }
    const Keys expected = keys_of(runs, 0, key_count);
    EXPECT_TRUE(std::ranges::equal(met, expected, [](const auto& a, const auto& b) {
      return a.first == b.first && a.second == b.second;
    }));
  }
}

TEST(Blocks, NoBlockNoStretches) {
  std::vector<BlockRun> stretches{{0, 4, true}};
  std::size_t next = 0;
  const std::vector<layout::Run> runs{{0, 10, true}};
  find_block_runs(stretches, {}, runs, next);
  EXPECT_TRUE(stretches.empty());
  const std::vector<Segment> block{{{20, 30, false}, 0}};
  find_block_runs(stretches, block, runs, next);
  EXPECT_TRUE(stretches.empty());
  EXPECT_EQ(next, 1u);
}

}  // namespace
}  // namespace treadle::run
