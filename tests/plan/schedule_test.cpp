// Schedules of random layouts: everything once, longest first, cut at chunk borders only.
#include "plan/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "fuzz.h"
#include "plan/chunks.h"

namespace treadle::plan {
namespace {

using layout::Layout;
using layout::Tiles;
using test::random_int;
using Random = std::mt19937_64;

struct Problem {
  Layout layout;
  ScheduleOptions options;
};

Problem random_problem(Random& random) {
  const std::int64_t key_heads = random_int(random, 1, 3);
  const layout::Extent extent{.batch = random_int(random, 1, 3),
                              .heads = key_heads * random_int(random, 1, 3),
                              .queries = random_int(random, 0, 120),
                              .keys = random_int(random, 0, random() % 8 == 0 ? 300'000 : 9000)};
  layout::Order order;
  if (random() % 2 == 0)
    order = {.kind = layout::Order::Kind::residue, .modulus = random_int(random, 2, 40)};
  const Tiles tiles(order, extent.queries, random_int(random, 1, 60));
  const bool per_batch = random() % 2 == 0;
  const bool per_head = random() % 2 == 0;
  std::vector<std::vector<layout::Run>> lists;
  const std::int64_t count =
      (per_batch ? extent.batch : 1) * (per_head ? extent.heads : 1) * tiles.count();
  for (std::int64_t i = 0; i < count; ++i) {
    lists.emplace_back();
    const std::int64_t unit = extent.keys.count() / 20 + 1;
    std::int64_t at = random_int(random, 0, 8 * unit);
    while (random() % 3 != 0) {
      const std::int64_t end = at + random_int(random, 1, 7 * unit);
      if (end > extent.keys.count()) break;
      lists.back().emplace_back(at, end, random() % 2 == 0);
      at = end + random_int(random, 0, unit);
    }
  }
  return {Layout(extent, tiles, per_batch, per_head, lists),
          {.key_heads = key_heads,
           .most_queries = random_int(random, 4, 50),
           .tiles_per_group = static_cast<int>(random_int(random, 1, 5)),
           .threads = static_cast<int>(random_int(random, 1, 9)),
           .weights = {}}};
}

template <class F>
void for_random_problems(int count, F&& f) {
  for (int round = 0; round < test::fuzz_count(count); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    const Problem problem = random_problem(random);
    f(problem, schedule(problem.layout, problem.options));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Schedules, EveryQueryMeetsEveryChunkOfItsRunsOnce) {
  for_random_problems(200, [](const Problem& problem, const Schedule& made) {
    const Layout& layout = problem.layout;
    const ScheduleOptions& options = problem.options;
    // By batch, head, tile and place in the tile: how often each chunk comes.
    std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>, int>
        times;
    std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>, int> finished;
    std::map<std::int64_t, std::int64_t> pieces;
    for (const Task& task : made.tasks) {
      for (std::int64_t e = task.first; e < task.first + task.count; ++e) {
        const Entry entry =
            entry_of(layout, options.key_heads, options.most_queries, task.key_head, e);
        for (std::int64_t i = entry.first_query; i < entry.first_query + entry.queries; ++i) {
          for (std::int64_t chunk = task.chunks.begin; chunk < task.chunks.end; ++chunk)
            ++times[{task.b, entry.head, entry.tile, i, chunk}];
          // A cut is finished once, by whoever is last.
          if (task.cut < 0 || pieces[task.cut] == 0)
            ++finished[{task.b, entry.head, entry.tile, i}];
        }
      }
      if (task.cut >= 0) ++pieces[task.cut];
    }
    const layout::Extent& extent = layout.extent();
    for (std::int64_t b = 0; b < extent.batch; ++b) {
      for (std::int64_t h = 0; h < extent.heads; ++h) {
        for (std::int64_t t = 0; t < layout.tiles().count(); ++t) {
          for (std::int64_t i = 0; i < layout.tiles().size(t); ++i) {
            ASSERT_EQ((finished[{b, h, t, i}]), 1);
            layout::for_each_piece(layout.runs(b, h, t), [&](layout::Range piece, bool) {
              const layout::Range chunks = chunks_of(piece);
              for (std::int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk)
                EXPECT_EQ((times[{b, h, t, i, chunk}]), 1);
            });
          }
        }
      }
    }
    for (const auto& [place, number] : times) ASSERT_EQ(number, 1);
  });
}

TEST(Schedules, PiecesOfACutAreItsChunksInOrder) {
  int cuts = 0;
  for_random_problems(400, [&](const Problem& problem, const Schedule& made) {
    std::vector<std::vector<Task>> pieces(made.cuts.size());
    for (const Task& task : made.tasks) {
      EXPECT_LE(task.chunks.begin, task.chunks.end);
      if (task.cut < 0) continue;
      ASSERT_LT(task.cut, static_cast<std::int64_t>(made.cuts.size()));
      pieces[static_cast<std::size_t>(task.cut)].push_back(task);
      EXPECT_FALSE(task.chunks.empty()) << "a piece without chunks";
    }
    EXPECT_TRUE(problem.options.threads > 1 || made.cuts.empty());
    for (std::size_t i = 0; i < made.cuts.size(); ++i) {
      const Cut& cut = made.cuts[i];
      ++cuts;
      EXPECT_EQ(static_cast<std::int64_t>(pieces[i].size()), cut.pieces);
      EXPECT_GT(cut.pieces, 1);
      std::ranges::sort(pieces[i], {}, [](const Task& piece) { return piece.chunks.begin; });
      std::int64_t at = cut.chunks.begin;
      for (const Task& piece : pieces[i]) {
        EXPECT_EQ(piece.chunks.begin, at);
        at = piece.chunks.end;
        EXPECT_EQ(piece.count, cut.count);
        EXPECT_EQ(piece.b, pieces[i].front().b);
        EXPECT_EQ(piece.key_head, pieces[i].front().key_head);
        EXPECT_EQ(piece.first, pieces[i].front().first);
      }
      EXPECT_EQ(at, cut.chunks.end);
    }
  });
  EXPECT_GT(cuts, 0);
}

// Tiles of different residue classes share no keys.
TEST(Schedules, TasksHaveTilesOfOneClass) {
  for_random_problems(200, [](const Problem& problem, const Schedule& made) {
    const Tiles& tiles = problem.layout.tiles();
    for (const Task& task : made.tasks) {
      const auto tile_of = [&](std::int64_t e) {
        return entry_of(problem.layout, problem.options.key_heads, problem.options.most_queries,
                        task.key_head, e)
            .tile;
      };
      EXPECT_LT(tile_of(task.first + task.count - 1), tiles.alike_end(tile_of(task.first)));
      if (tiles.order().kind != layout::Order::Kind::residue) continue;
      for (std::int64_t e = task.first; e < task.first + task.count; ++e) {
        EXPECT_EQ(tiles.query(tile_of(e), 0) % tiles.order().modulus,
                  tiles.query(tile_of(task.first), 0) % tiles.order().modulus);
      }
    }
  });
}

// Eight tasks that cost the same, on two threads that take them in turn: 0 4 1 5 2 6 3 7.
TEST(Schedules, AThreadHasNeighbours) {
  const layout::Extent extent{.batch = 1, .heads = 1, .queries = 64, .keys = 64};
  const Tiles tiles({}, extent.queries, 8);
  const Layout layout(extent, tiles, false, false,
                      std::vector<std::vector<layout::Run>>(8, {layout::Run(0, 64, true)}));
  const Schedule made =
      schedule(layout, {.most_queries = 8, .tiles_per_group = 1, .threads = 2, .weights = {}});
  std::vector<std::int64_t> order;
  for (const Task& task : made.tasks) order.push_back(task.first);
  EXPECT_EQ(order, (std::vector<std::int64_t>{0, 4, 1, 5, 2, 6, 3, 7}));
}

TEST(Schedules, LongestFirst) {
  for_random_problems(200, [](const Problem& problem, const Schedule& made) {
    if (problem.options.threads == 1) return;
    for (std::size_t i = 1; i < made.tasks.size(); ++i)
      EXPECT_LE(made.tasks[i].cost, made.tasks[i - 1].cost);
  });
}

// Chunks of 1024 to 16,384 keys: pieces hold about as many keys as one another.
TEST(Schedules, PiecesOfAMillionKeysAreAboutEqual) {
  constexpr std::int64_t keys = std::int64_t{1} << 20;
  const Layout layout({1, 1, 20, keys}, Tiles({}, 20, 48), false, false, {{{0, keys, true}}});
  const Schedule made = schedule(layout, {.threads = 4, .weights = {}});
  ASSERT_EQ(made.cuts.size(), 1u);
  EXPECT_EQ(made.tasks.size(), 16u);
  for (const Task& task : made.tasks) {
    const std::int64_t length =
        keys_of_chunk(task.chunks.end - 1).end - keys_of_chunk(task.chunks.begin).begin;
    EXPECT_NEAR(static_cast<double>(length), keys / 16.0, 16384);
  }
}

// One long head: without cuts one thread would have all of it.
TEST(Schedules, OneLongTaskIsCutForAllThreads) {
  const Tiles tiles({}, 20, 48);
  const Layout layout({1, 1, 20, 64 * 1024}, tiles, false, false, {{{0, 64 * 1024, true}}});
  for (const int threads : {2, 3, 7, 64}) {
    const Schedule made = schedule(layout, {.threads = threads, .weights = {}});
    ASSERT_EQ(made.cuts.size(), 1u);
    EXPECT_GE(static_cast<int>(made.tasks.size()), std::min(threads, 64));
    EXPECT_EQ(made.cuts[0].chunks, layout::Range(0, 64));
  }
  EXPECT_EQ(schedule(layout, {.threads = 1, .weights = {}}).tasks.size(), 1u);
}

TEST(Schedules, TilesThatSeeNothingAreWrittenAllTheSame) {
  const Tiles tiles({}, 100, 10);
  const Layout layout({1, 2, 100, 500}, tiles, false, false,
                      std::vector<std::vector<layout::Run>>(10));
  const Schedule made = schedule(layout, {.key_heads = 2, .threads = 3, .weights = {}});
  std::int64_t entries = 0;
  for (const Task& task : made.tasks) {
    EXPECT_TRUE(task.chunks.empty());
    EXPECT_EQ(task.cut, -1);
    entries += task.count;
  }
  EXPECT_EQ(entries, 20);
}

TEST(Schedules, NothingToDo) {
  EXPECT_TRUE(schedule(Layout({0, 2, 10, 10}, Tiles({}, 10, 8), false, false,
                              std::vector<std::vector<layout::Run>>(2)),
                       {.key_heads = 2, .threads = 2, .weights = {}})
                  .tasks.empty());
  EXPECT_TRUE(schedule(Layout({1, 0, 10, 10}, Tiles({}, 10, 8), false, false,
                              std::vector<std::vector<layout::Run>>(2)),
                       {.key_heads = 0, .threads = 2, .weights = {}})
                  .tasks.empty());
  EXPECT_TRUE(schedule(Layout({1, 2, 0, 10}, Tiles({}, 0, 8), false, false, {}),
                       {.key_heads = 2, .threads = 2, .weights = {}})
                  .tasks.empty());
}

// Tiles of 100 queries for a kernel that takes 48: 48, 48 and 4; the last tile of 30 fills one
// part. Each for both heads of a key head.
TEST(Entries, OfTilesHigherThanAKernelTakes) {
  const Layout layout({1, 4, 230, 10}, Tiles({}, 230, 100), false, false,
                      std::vector<std::vector<layout::Run>>(3));
  const auto entry = [&](std::int64_t key_head, std::int64_t e) {
    const Entry made = entry_of(layout, 2, 48, key_head, e);
    return std::tuple(made.head, made.tile, made.first_query, made.queries);
  };
  EXPECT_EQ(entry(0, 0), std::tuple(0, 0, 0, 48));
  EXPECT_EQ(entry(0, 1), std::tuple(1, 0, 0, 48));
  EXPECT_EQ(entry(0, 2), std::tuple(0, 0, 48, 48));
  EXPECT_EQ(entry(0, 5), std::tuple(1, 0, 96, 4));
  EXPECT_EQ(entry(0, 6), std::tuple(0, 1, 0, 48));
  EXPECT_EQ(entry(0, 12), std::tuple(0, 2, 0, 30));
  EXPECT_EQ(entry(0, 14), std::tuple(0, 2, 48, 0));
  EXPECT_EQ(entry(1, 0), std::tuple(2, 0, 0, 48));
  EXPECT_EQ(entry(1, 17), std::tuple(3, 2, 96, 0));
}

}  // namespace
}  // namespace treadle::plan
