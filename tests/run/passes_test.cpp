// Masks of several terms: the forward pass over passes is the definition, with bits that do not
// depend on how passes are done.
#include <gtest/gtest.h>

#include "close.h"
#include "split_masks.h"

namespace treadle {
namespace {

using test::ForwardRun;
using test::Random;
using test::random_int;
using test::Rows;

layout::Order order_of_queries(Random& random) {
  using Kind = layout::Order::Kind;
  const layout::Order orders[] = {{},
                                  {.kind = Kind::residue, .modulus = random_int(random, 2, 12)},
                                  {.kind = Kind::blocks, .modulus = random_int(random, 2, 40)}};
  return orders[std::max<std::int64_t>(random_int(random, -1, 2), 0)];
}

struct PassesCount {
  test::Compared compared;
  int several = 0;
};

// A mask costs its kernels; problems cost little more.
void fuzz_passes(std::uint64_t seed, PassesCount& count) {
  Random random = test::rng(seed);
  test::SplitMods mods = test::split_mods(random);
  mods.score = test::random_score(random);
  SCOPED_TRACE(mods.text());
  count.several += mods.terms().empty() ? 0 : 1;
  const ForwardRun run(mods.graphs());
  test::SplitShape shape = test::random_shape(random, 120);
  const int lanes = run.target().lanes(shape.type == DType::f64 ? DType::f64 : DType::f32);
  const bool chosen = random_int(random, 0, 7) == 0;
  // Few, and of one vector: each needs kernels of its own.
  const layout::Order order = order_of_queries(random);
  for (int problem = 0; problem < 5; ++problem) {
    const test::SplitTensors tensors(random, shape);
    const Inputs inputs = tensors.inputs();
    const layout::Extent extent = test::extent_of(inputs);
    const Layout first = chosen ? Layout() : run.passes(extent, {}, lanes);
    const Rows got = run(inputs, 0.25, first);
    expect_close(got, run.reference(inputs, 0.25, DType::f32),
                 run.reference(inputs, 0.25, DType::f64), count.compared);
    if (testing::Test::HasFatalFailure()) return;
    ASSERT_TRUE(same_rows(run(inputs, 0.25, first, tbb_executor(3)), got));
    const Layout other = run.passes(extent, order, random_int(random, 1, lanes));
    const auto shuffled = std::make_shared<test::ShuffledExecutor>(5, seed);
    ASSERT_TRUE(same_rows(run(inputs, 0.25, other, shuffled), got));
    draw_lengths(random, shape, 120);
    draw_captures(random, mods);
  }
}

TEST(Passes, LikeTheDefinitionAndWithTheSameBitsForAnyTiles) {
  PassesCount count;
  for (int round = 0; round < test::fuzz_count(300); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    fuzz_passes(seed, count);
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(count.several, test::fuzz_at_least(240));
  EXPECT_LE(10 * count.compared.skipped, count.compared.rows);
}

// Infinities and NaN in one row, and scores of -inf: a pass may see nothing else than those.
TEST(Passes, HaveSpecialNumbersWhereTheDefinitionHas) {
  constexpr const char* scores[]{"score", "where((q + kv) % 3 == 0, -inf, score)",
                                 "where(q % 4 == 1, -inf, score)",
                                 "where(kv % 5 == 0, score, -inf)"};
  for (int round = 0; round < test::fuzz_count(60); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    test::SplitMods mods = test::split_mods(random);
    mods.score = scores[random_int(random, 0, 3)];
    SCOPED_TRACE(mods.text());
    const ForwardRun run(mods.graphs());
    for (int problem = 0; problem < 6; ++problem) {
      test::SplitShape shape = test::random_shape(random, 80);
      shape.type = DType::f32;
      test::SplitTensors tensors(random, shape);
      Tensor* const spoilt[]{&tensors.q, &tensors.k, &tensors.v};
      test::spoil_a_row(random, *spoilt[problem % 3]);
      const Inputs inputs = tensors.inputs();
      const layout::Extent extent = test::extent_of(inputs);
      const Layout layout = run.passes(extent, {}, run.target().lanes(DType::f32));
      const Rows got = run(inputs, 0.25, layout);
      test::expect_alike(got, run.reference(inputs, 0.25), 1e-4);
      if (HasFatalFailure()) return;
      ASSERT_TRUE(same_rows(run(inputs, 0.25, layout, tbb_executor(3)), got));
      draw_captures(random, mods);
    }
  }
}

}  // namespace
}  // namespace treadle
