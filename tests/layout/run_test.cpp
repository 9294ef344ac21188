// Runs are packed one way, whatever they are appended as, and cut without looking at every piece.
#include "layout/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fuzz.h"
#include "random_graph.h"

namespace treadle::layout {
namespace {

using Runs = std::vector<layout::Run>;
using testing::ElementsAre;

layout::Run steps(std::int64_t begin, std::int64_t width, std::int64_t step, std::int64_t count,
                  bool full) {
  return layout::Run::stepped({begin, width, step, count}, full);
}

// One letter per key: what a list says.
std::string picture(const Runs& runs, std::int64_t keys) {
  std::string text(static_cast<std::size_t>(keys), '.');
  for_each_piece(runs, [&](Range piece, bool full) {
    for (std::int64_t key = piece.begin; key < piece.end; ++key)
      text[static_cast<std::size_t>(key)] = full ? 'F' : 'p';
  });
  return text;
}

// As the header says it: the longest plain pieces first, then greedily from the left.
Runs packed(const std::string& picture) {
  struct Piece {
    std::int64_t begin, width;
    char kind;
  };
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < picture.size(); ++i) {
    if (i > 0 && picture[i] == picture[i - 1] && !pieces.empty() && picture[i] != '.') {
      ++pieces.back().width;
    } else if (picture[i] != '.') {
      pieces.push_back({static_cast<std::int64_t>(i), 1, picture[i]});
    }
  }
  Runs runs;
  for (std::size_t i = 0; i < pieces.size();) {
    const auto [begin, width, kind] = pieces[i];
    std::size_t next = i + 1;
    const auto alike = [&] {
      return next < pieces.size() && pieces[next].width == width && pieces[next].kind == kind;
    };
    const std::int64_t step = alike() ? pieces[next].begin - begin : 0;
    while (alike() && pieces[next].begin == begin + static_cast<std::int64_t>(next - i) * step)
      ++next;
    runs.push_back(steps(begin, width, step, static_cast<std::int64_t>(next - i), kind == 'F'));
    i = next;
  }
  return runs;
}

layout::Run random_run(test::Random& random, std::int64_t from) {
  const std::int64_t width = test::random_int(random, 1, 3);
  return steps(from + test::random_int(random, 0, 1) * test::random_int(random, 0, 9), width,
               width + test::random_int(random, 1, 4), test::random_int(random, 1, 6),
               test::chance(random, 0.5));
}

TEST(Run, IsPackedTheSameWayHoweverItIsAppended) {
  for (int round = 0; round < test::fuzz_count(3000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    test::Random random = test::rng(seed);
    Runs whole, by_piece, by_key;
    for (std::int64_t n = test::random_int(random, 0, 8); n > 0; --n) {
      const layout::Run run = random_run(random, whole.empty() ? 0 : whole.back().end());
      append(whole, run);
      for_each_piece({&run, 1}, [&](Range piece, bool full) {
        append(by_piece, piece.begin, piece.end, full);
        for (std::int64_t key = piece.begin; key < piece.end; ++key)
          append(by_key, key, key + 1, full);
      });
      ASSERT_EQ(whole, by_piece);
      ASSERT_EQ(whole, by_key);
    }
    ASSERT_EQ(whole, packed(picture(whole, whole.empty() ? 0 : whole.back().end())));
  }
}

TEST(Run, JoinsEqualStepsAlone) {
  Runs runs;
  append(runs, 0, 2, true);
  append(runs, 10, 12, true);
  append(runs, 20, 22, true);
  EXPECT_THAT(runs, ElementsAre(steps(0, 2, 10, 3, true)));
  append(runs, 22, 23, true);  // the last piece is wider now
  EXPECT_THAT(runs, ElementsAre(steps(0, 2, 10, 2, true), layout::Run(20, 23, true)));
  append(runs, 30, 33, false);
  append(runs, 40, 40, true);  // nothing
  EXPECT_EQ(runs.size(), 3u);
}

TEST(Run, PartsAndCountsAreThoseOfItsKeys) {
  for (int round = 0; round < test::fuzz_count(500); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    test::Random random = test::rng(seed);
    const layout::Run run = random_run(random, 0);
    const std::string all = picture({run}, 80);
    const std::int64_t begin = test::random_int(random, 0, 60);
    const std::int64_t end = test::random_int(random, begin, 80);
    const RunPart part(run, begin, end);
    std::string expected(80, '.');
    std::copy(all.begin() + begin, all.begin() + end, expected.begin() + begin);
    EXPECT_EQ(picture(Runs(part.begin(), part.end()), 80), expected);
    for (const layout::Run& piece : part) EXPECT_GT(piece.length(), 0);
    EXPECT_EQ(run.keys_before(begin), begin - std::count(all.begin(), all.begin() + begin, '.'));
    std::int64_t before = 0;
    while (before < run.count() && run.piece(before).end <= begin) ++before;
    EXPECT_EQ(run.pieces_before(begin), before);
  }
}

TEST(Run, HasAText) {
  EXPECT_EQ(to_text(layout::Run(0, 16, true)), "[0, 16) full");
  EXPECT_EQ(to_text(steps(5, 1, 128, 64, false)), "[5, 8070) step 128 width 1 partial");
}

}  // namespace
}  // namespace treadle::layout
