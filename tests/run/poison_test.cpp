// Reads that may leave their buffers and divisions that may be by zero: a call fails exactly when
// the definition does, and has written nothing then; else its results are the definition's.
#include <gtest/gtest.h>

#include "close.h"
#include "fuzz.h"
#include "ir/print.h"
#include "placed.h"
#include "random_graph.h"
#include "random_points.h"
#include "treadle/error.h"

namespace treadle {
namespace {

using test::chance;
using test::ForwardRun;
using test::Random;
using test::random_int;
using test::Rows;

test::Mods risky_mods(Random& random) {
  using ir::Input;
  using ir::Op;
  test::Mods mods;
  {
    test::GraphOptions options;
    options.special_constants = false;
    options.operations = static_cast<int>(random_int(random, 1, 12));
    // An index made of the score may be in or out by a rounding.
    options.inputs.erase(options.inputs.begin());
    options.slots = test::slots_of({DType::f32, DType::i32, DType::i64});
    ir::Builder make;
    const ir::Graph drawn = random_graph(random, options);
    ir::NodeId bias = make.copy(drawn)[drawn.output()];
    if (chance(random, 0.5)) {
      const ir::NodeId index = make(Op::sub, make.input(chance(random, 0.5) ? Input::q : Input::kv),
                                    make.integer(random_int(random, 0, 3)));
      bias = make(Op::add, bias, make.load({"f32_1", DType::f32, 1}, {index}));
    }
    const ir::NodeId tamed = make(Op::where, make(Op::isnan, bias), make.real(0),
                                  make(Op::clamp, bias, make.real(-4), make.real(4)));
    mods.score_mod =
        passes::simplify(make.finish({make(Op::add, make.input(Input::score), tamed)}));
  }
  test::GraphOptions options = test::mask_options();
  options.special_constants = false;
  options.operations = static_cast<int>(random_int(random, 1, 12));
  if (chance(random, 0.4)) options.allow = [](ir::Op op) { return op != Op::load; };
  mods.mask = passes::simplify(random_graph(random, options));
  return mods;
}

// The message, or nothing if it went well.
template <class F>
std::string failure_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PoisonFuzz, FailsWhereTheDefinitionDoes) {
  int failed = 0;
  int succeeded = 0;
  test::Compared compared;
  for (int round = 0; round < test::fuzz_count(100); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    test::Mods mods;
    // A divisor that turns out to be the constant 0 is refused before any call.
    if (!failure_of([&] { mods = risky_mods(random); }).empty()) continue;
    const test::CaptureOptions lengths{
        .shortest = 1, .longest = chance(random, 0.3) ? 8 : 40, .special_values = false};
    const test::Captures score_captures = random_captures(random, mods.score_mod, lengths);
    const test::Captures mask_captures = random_captures(random, mods.mask, lengths);
    const auto bind = [&](const ir::Graph& graph, const test::Captures& captures) {
      for (std::size_t i = 0; i < graph.slots().size(); ++i) {
        const std::string& name = graph.slots()[i].name;
        if (std::ranges::find(mods.captures, name, &Capture::name) == mods.captures.end())
          mods.captures.emplace_back(name, captures.views[i]);
      }
    };
    bind(mods.score_mod, score_captures);
    bind(mods.mask, mask_captures);
    SCOPED_TRACE(ir::to_text(mods.score_mod) + "\nmask " + ir::to_text(mods.mask));
    const ForwardRun run(mods);
    for (int p = 0; p < 3; ++p) {
      const std::int64_t queries = random_int(random, 1, 30);
      const std::int64_t keys = random_int(random, 1, 30);
      Tensor q(DType::f32, {2, 2, queries, 4}), k(DType::f32, {2, 2, keys, 4}),
          v(DType::f32, {2, 2, keys, 3});
      test::fill_eighths(random, q);
      test::fill_eighths(random, k);
      test::fill_reals(random, v);
      const Inputs inputs{q, k, v};
      Rows got;
      const layout::Layout layout =
          run.build(test::extent_of(inputs), {}, random_int(random, 1, 40));
      test::ShuffledExecutor shuffled(7, random());
      const std::string mine = failure_of([&] { got = run(inputs, 0.5, layout, shuffled); });
      const std::string theirs = failure_of([&] { (void)run.reference(inputs, 0.5); });
      ASSERT_EQ(mine, theirs);
      ++(mine.empty() ? succeeded : failed);
      if (!mine.empty()) continue;
      expect_close(got, run.reference(inputs, 0.5, DType::f32),
                   run.reference(inputs, 0.5, DType::f64), compared);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  EXPECT_GE(failed, test::fuzz_at_least(19));  // on average a third of 300
  EXPECT_GE(succeeded, test::fuzz_at_least(19));
}

}  // namespace
}  // namespace treadle
