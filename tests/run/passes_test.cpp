// Masks of several terms: forward and backward over passes, like the definition, with bits that do
// not depend on how passes are done.
#include <gtest/gtest.h>

#include "close.h"
#include "fuzz.h"
#include "passes/simplify.h"
#include "placed.h"
#include "random_mask.h"

namespace treadle {
namespace {

using test::ForwardRun;
using test::Random;
using test::random_int;
using test::Rows;

// Documents of a few lengths, for every position that a test has.
std::shared_ptr<const Tensor> documents(Random& random, std::int64_t length) {
  auto ids = std::make_shared<Tensor>(DType::i32, Dims{length});
  std::int32_t id = 0;
  for (std::int32_t& x : ids->data<std::int32_t>()) x = id += random_int(random, 0, 9) == 0 ? 1 : 0;
  return ids;
}

struct Case {
  test::Mods mods;
  Tensor q, k, v;

  [[nodiscard]] Inputs inputs() const { return {q, k, v}; }
};

Case random_case(Random& random, bool causal) {
  Case made;
  ir::Builder build;
  ir::NodeId mask =
      test::RandomMask(random).make(build, static_cast<int>(random_int(random, 1, 5)));
  if (causal) {
    mask = build(ir::Op::logical_and, mask,
                 build(ir::Op::le, build.input(ir::Input::kv), build.input(ir::Input::q)));
  }
  made.mods.mask = passes::simplify(build.finish({mask}));
  made.mods.score_mod = test::mods_of({}, {}).score_mod;
  const std::int64_t queries = random_int(random, 1, 150), keys = random_int(random, 1, 150);
  const std::int64_t longest = 400;
  made.mods.memory.push_back(documents(random, longest));
  made.mods.captures.emplace_back("doc", *made.mods.memory.back());
  const std::int64_t batch = random_int(random, 1, 2), key_heads = random_int(random, 1, 2);
  const std::int64_t dim = random_int(random, 0, 1) == 0 ? 16 : 20;
  made.q = Tensor(DType::f32, {batch, key_heads * random_int(random, 1, 2), queries, dim});
  made.k = Tensor(DType::f32, {batch, key_heads, keys, dim});
  made.v = Tensor(DType::f32, {batch, key_heads, keys, 24});
  test::fill_eighths(random, made.q);
  test::fill_eighths(random, made.k);
  test::fill_reals(random, made.v);
  return made;
}

TEST(Passes, LikeTheDefinitionAndWithTheSameBitsForAnyTiles) {
  test::Compared compared;
  int several = 0;
  for (int round = 0; round < test::fuzz_count(600); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    const Case made = random_case(random, false);
    const ForwardRun run(made.mods);
    const Rows got = run(made.inputs(), 0.25);
    expect_close(got, run.reference(made.inputs(), 0.25, DType::f32),
                 run.reference(made.inputs(), 0.25, DType::f64), compared);
    const layout::Order orders[] = {
        {},
        {.kind = layout::Order::Kind::residue, .modulus = random_int(random, 2, 12)},
        {.kind = layout::Order::Kind::blocks, .modulus = random_int(random, 2, 40)}};
    const Layout other = run.passes(test::extent_of(made.inputs()),
                                    orders[random_int(random, 0, 2)], random_int(random, 1, 60));
    several += other.held()->passes.size() > 1 ? 1 : 0;
    EXPECT_TRUE(same_rows(run(made.inputs(), 0.25, other, tbb_executor(3)), got));
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GE(several, test::fuzz_at_least(100));
}

}  // namespace
}  // namespace treadle
