// The same for every processor this one can be.
#include <gtest/gtest.h>

#include "fuzz_forward.h"
#include "treadle/patterns.h"

namespace treadle {
namespace {

using test::ForwardRun;
using test::mods_of;
using test::Random;
using test::Rows;

class Targets : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Runnable, Targets, testing::ValuesIn(plan::runnable_targets()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(Targets, Fuzz) {
  if (GetParam() == plan::host_target().name) return;  // fuzz_test.cpp does
  test::FuzzCount count;
  for (int round = 0; round < test::fuzz_count(14); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round + 500);
    SCOPED_TRACE(test::seed_text(seed));
    test::fuzz_forward(seed, {.target = GetParam(), .problems = 3, .layouts = 3}, count);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Targets, TypesAndDims) {
  const ForwardRun run(mods_of(mods::soft_cap(10), mods::causal_lower_right(40, 1100)), GetParam());
  Random random = test::rng(1);
  test::Compared compared;
  for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const std::int64_t dim : {1, 5, 64}) {
      Tensor q(type, {1, 2, 40, dim}), k(type, {1, 1, 1100, dim}), v(type, {1, 1, 1100, dim + 1});
      test::fill_eighths(random, q);
      test::fill_eighths(random, k);
      test::fill_reals(random, v);
      const Inputs inputs{q, k, v};
      const Rows got = run(inputs, 0.25);
      expect_close(got, run.reference(inputs, 0.25, DType::f32),
                   run.reference(inputs, 0.25, DType::f64), compared);
      if (HasFatalFailure()) return;
      const layout::Layout other = test::rewritten(run.build({1, 2, 40, 1100}, {}, 7), random);
      EXPECT_TRUE(same_rows(run(inputs, 0.25, other, *tbb_executor(3)), got));
    }
  }
}

// Rounding and powers of two differ most between processors: large, small, infinite and no numbers.
TEST_P(Targets, SpecialScores) {
  Random random = test::rng(2);
  for (const DType type : {DType::f32, DType::f64}) {
    Tensor q(type, {1, 1, 30, 4}), k(type, {1, 1, 1300, 4}), v(type, {1, 1, 1300, 5});
    test::fill_eighths(random, q);
    test::fill_eighths(random, k);
    test::fill_reals(random, v);
    for (const char* text :
         {"score * 500.0", "score - 1e4", "where(kv < 1030, 1e35, score)",
          "where(kv % 7 == q % 7, score, -inf)", "where(kv == 1030 && q == 7, inf, score)",
          "where(kv == q && q % 3 == 0, nan, score * 20.0)", "-inf"}) {
      SCOPED_TRACE(text);
      const ForwardRun run(mods_of(parse(text), parse("(q + kv) % 3 != 0")), GetParam());
      expect_alike(run({q, k, v}, 0.25), run.reference({q, k, v}, 0.25),
                   type == DType::f32 ? 1e-3 : 1e-9);
    }
    // In V, where a hidden one must not be heard.
    Tensor spoilt = v.clone();
    for (std::int64_t key = 0; key < 1300; key += 13)
      base::store_double(spoilt.view().data(), type, key * 5 + key % 5,
                         key % 2 == 0 ? INFINITY : NAN);
    const ForwardRun run(mods_of({}, parse("(q + kv) % 13 != 0 && q < 20")), GetParam());
    expect_alike(run({q, k, spoilt}, 0.25), run.reference({q, k, spoilt}, 0.25), 2e-5);
  }
}

}  // namespace
}  // namespace treadle
