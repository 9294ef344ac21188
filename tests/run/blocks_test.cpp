// Blocks of keys against sets of single keys.
#include "run/blocks.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "fuzz.h"

namespace treadle::run {
namespace {

using Keys = std::map<std::int64_t, bool>;  // key -> whether its run is full

std::vector<layout::Run> random_runs(std::mt19937_64& random, std::int64_t keys) {
  std::vector<layout::Run> runs;
  std::int64_t at = 0;
  while (true) {
    at += test::random_int(random, 0, 1) * test::random_int(random, 0, 30);
    const std::int64_t end = at + test::random_int(random, 1, 40);
    if (end > keys) return runs;
    runs.emplace_back(at, end, test::random_int(random, 0, 1) == 1);
    at = end;
  }
}

Keys keys_of(const std::vector<layout::Run>& runs, std::int64_t begin, std::int64_t end) {
  Keys keys;
  for (const layout::Run& run : runs) {
    for (std::int64_t key = std::max(begin, run.begin()); key < std::min(end, run.end()); ++key)
      keys[key] = run.full();
  }
  return keys;
}

TEST(Blocks, WantedKeysAreThoseOfTheRunsInside) {
  for (int round = 0; round < test::fuzz_count(400); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    const std::int64_t begin = test::random_int(random, 0, 200);
    const std::int64_t end = begin + test::random_int(random, 1, 200);
    std::vector<Segment> wanted;
    std::set<std::int64_t> expected;
    std::int64_t sum = 0;
    for (int tile = 0; tile < test::random_int(random, 1, 4); ++tile) {
      const std::vector<layout::Run> runs = random_runs(random, 300);
      add_wanted(wanted, runs, begin, end);
      for (const auto& [key, full] : keys_of(runs, begin, end)) {
        expected.insert(key);
        ++sum;
      }
    }
    std::int64_t added = 0;
    for (const Segment& segment : wanted) added += segment.end - segment.begin;
    EXPECT_EQ(added, sum);
    EXPECT_EQ(join(wanted), static_cast<std::int64_t>(expected.size()));
    std::set<std::int64_t> got;
    std::int64_t last = -1;
    for (const Segment& segment : wanted) {
      EXPECT_LT(segment.begin, segment.end);
      EXPECT_GT(segment.begin, last) << "segments ascend and are apart";
      last = segment.end;
      for (std::int64_t key = segment.begin; key < segment.end; ++key) got.insert(key);
    }
    EXPECT_EQ(got, expected);
  }
}

TEST(Blocks, NothingWanted) {
  std::vector<Segment> wanted;
  add_wanted(wanted, {}, 0, 100);
  EXPECT_EQ(join(wanted), 0);
  const std::vector<layout::Run> runs{{10, 20, true}, {30, 40, false}};
  add_wanted(wanted, runs, 20, 30);
  add_wanted(wanted, runs, 40, 1000);
  EXPECT_TRUE(wanted.empty());
}

// Block after block, as a worker walks over them: every key of the runs is met once, in order, in a
// stretch of its kind.
TEST(Blocks, StretchesCoverTheRunsOnce) {
  for (int round = 0; round < test::fuzz_count(400); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    const std::vector<layout::Run> runs = random_runs(random, 300);
    // Blocks hold the tile's keys and those of others.
    std::vector<Segment> wanted;
    add_wanted(wanted, runs, 0, 300);
    const std::vector<layout::Run> others = random_runs(random, 300);
    add_wanted(wanted, others, 0, 300);
    join(wanted);
    std::vector<std::int64_t> keys;
    for (const Segment& segment : wanted) {
      for (std::int64_t key = segment.begin; key < segment.end; ++key) keys.push_back(key);
    }
    const auto block_keys = static_cast<std::size_t>(test::random_int(random, 1, 70));
    std::size_t next = 0;
    std::vector<std::pair<std::int64_t, bool>> met;
    for (std::size_t first = 0; first < keys.size(); first += block_keys) {
      const std::size_t count = std::min(block_keys, keys.size() - first);
      std::vector<Segment> block;
      for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t key = keys[first + i];
        if (!block.empty() && block.back().end == key) {
          ++block.back().end;
        } else {
          block.push_back({key, key + 1, static_cast<std::int64_t>(i)});
        }
      }
      std::vector<BlockRun> stretches{{5, 6, true}};  // what was there goes
      find_block_runs(stretches, block, runs, next);
      std::int64_t end = -1;
      bool full = false;
      for (const BlockRun& stretch : stretches) {
        EXPECT_LT(stretch.begin, stretch.end);
        EXPECT_TRUE(stretch.begin > end || (stretch.begin == end && stretch.full != full));
        EXPECT_LE(stretch.end, static_cast<std::int64_t>(count));
        end = stretch.end;
        full = stretch.full;
        for (std::int64_t at = stretch.begin; at < stretch.end; ++at)
          met.emplace_back(keys[first + static_cast<std::size_t>(at)], stretch.full);
      }
    }
    const Keys expected = keys_of(runs, 0, 300);
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
  const std::vector<Segment> block{{20, 30, 0}};
  find_block_runs(stretches, block, runs, next);
  EXPECT_TRUE(stretches.empty());
  EXPECT_EQ(next, 1u);
}

}  // namespace
}  // namespace treadle::run
