// Tasks of residue classes: dQ, dK and dV have the bits that tasks of chunks give them.
//
// A call that asks for the gradient of a capture has tasks of chunks (plan/backward_schedule.h), so
// the same call with and without it compares the two.
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "backend/held_layout.h"
#include "direct_run.h"
#include "fuzz.h"
#include "plan/key_classes.h"
#include "random_mods.h"
#include "split_masks.h"

namespace treadle {
namespace {

using test::Random;
using test::random_int;
using test::random_tensor;

// Strided, dilated, shifted, and with a local term beside.
std::string random_mask(Random& random) {
  const std::int64_t m =
      random_int(random, 0, 2) == 0 ? random_int(random, 2, 9) : random_int(random, 10, 200);
  const std::string strided = fmt::format("(q - kv) % {} == 0", m);
  const std::array masks{
      strided,
      "q >= kv && " + strided,
      fmt::format("q >= kv && q - kv < {} && ", m * random_int(random, 2, 30)) + strided,
      fmt::format("(q - kv) % {} == {}", m, random_int(random, 0, m - 1)),
      fmt::format("q % {0} == kv % {0} && q != 11", m),
      fmt::format("q >= kv && (q - kv < {} || ", random_int(random, 1, 60)) + strided + ")",
      fmt::format("q % {0} == kv % {0} && kv % {0} != {1} && kv >= h * 50", m, m / 2),
  };
  return masks[static_cast<std::size_t>(random_int(random, 0, std::ssize(masks) - 1))];
}

struct Strided {
  Tensor q, k, v, dout, dlse;

  explicit Strided(Random& random) {
    const std::array types{DType::f32, DType::f32, DType::bf16, DType::f64};
    const DType type = types[static_cast<std::size_t>(random_int(random, 0, 3))];
    const DType compute = type == DType::f64 ? DType::f64 : DType::f32;
    const std::int64_t batch = random_int(random, 1, 2), key_heads = random_int(random, 1, 2);
    const std::int64_t key_batch = random_int(random, 0, 1) == 0 ? 1 : batch;
    const std::int64_t heads = key_heads * random_int(random, 1, 3);
    const std::int64_t queries = random_int(random, 1, 2500), keys = random_int(random, 200, 4500);
    // Few, so that kernels are compiled once.
    const std::int64_t dim = random_int(random, 0, 1) == 0 ? 16 : 9, value_dim = 25 - dim;
    q = random_tensor(random(), type, {batch, heads, queries, dim});
    k = random_tensor(random(), type, {key_batch, key_heads, keys, dim});
    v = random_tensor(random(), type, {key_batch, key_heads, keys, value_dim});
    dout = random_tensor(random(), type, {batch, heads, queries, value_dim});
    dlse = random_tensor(random(), compute, {batch, heads, queries});
  }
  [[nodiscard]] Inputs inputs() const { return {q, k, v}; }
};

// How many terms of the mask have classes of keys.
int classes_of(const Attention& attention, const Inputs& inputs) {
  const Layout layout = attention.layout(inputs);
  int found = 0;
  for (const auto& term : layout.held()->terms)
    found += plan::key_classes(term.layout).has_value() ? 1 : 0;
  return found;
}

// With a row of NaN and infinities, or without. How many terms have classes.
int compare(Random& random, bool special) {
  const std::string mask = random_mask(random);
  SCOPED_TRACE(mask);
  const Tensor x = random_tensor(5, DType::f32, {1});
  Options options;
  options.score_mod = parse("score * x[0] + 0.01 * float(kv - q)", {{"x", x}});
  options.mask = parse(mask);
  const Attention by_class = compile(options);
  options.gradients = {"x"};
  const Attention by_chunk = compile(options);
  Strided problem(random);
  const Inputs inputs = problem.inputs();
  SCOPED_TRACE(fmt::format("{} {} {}", name_of(problem.q.dtype()), to_string(problem.q.shape()),
                           to_string(problem.k.shape())));
  if (special) {
    Tensor* const all[]{&problem.q, &problem.k, &problem.v, &problem.dout};
    test::spoil_a_row(random, *all[random_int(random, 0, 3)]);
  }
  const Forward y = by_class.forward(inputs, {.lse = true});
  std::optional<ConstView> dlse;
  if (random_int(random, 0, 1) == 0) dlse = problem.dlse;
  const auto backward = [&](const Attention& attention, const Call& call) {
    return attention.backward(inputs, {y.out, y.lse}, problem.dout, dlse, call);
  };
  const Backward expected = backward(by_chunk, {.executor = serial_executor()});
  for (const int threads : {1, 3}) {
    const auto shuffled = std::make_shared<test::ShuffledExecutor>(threads, random());
    const Call call{.executor = threads == 1 ? serial_executor() : shuffled};
    const Backward got = backward(by_class, call);
    EXPECT_TRUE(test::same_numbers(got.dq, expected.dq)) << threads;
    EXPECT_TRUE(test::same_numbers(got.dk, expected.dk)) << threads;
    EXPECT_TRUE(test::same_numbers(got.dv, expected.dv)) << threads;
  }
  return classes_of(by_class, inputs);
}

TEST(ClassTasks, HaveTheBitsOfTasksOfChunks) {
  int with_classes = 0;
  for (int round = 0; round < test::fuzz_count(100); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    with_classes += compare(random, false) > 0 ? 1 : 0;
    if (HasFailure()) return;
  }
  EXPECT_GE(with_classes, test::fuzz_at_least(50));
}

// A tile whose keys of a chunk end in one block while other tiles look at more of it in the next.
TEST(ClassTasks, EndChunksThatOthersGoOnWith) {
  Random random = test::rng(1188351403);
  EXPECT_GT(compare(random, false), 0);
}

TEST(ClassTasks, HaveSpecialNumbersWhereTasksOfChunksHave) {
  for (int round = 0; round < test::fuzz_count(50); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    compare(random, true);
    if (HasFailure()) return;
  }
}

// Few classes have few tasks, so their keys are cut at chunks, and positions need not begin at 0.
TEST(ClassTasks, OfSomeChunksHaveTheBitsOfTasksOfChunks) {
  for (const auto& [modulus, first] : {std::pair(2, 0), std::pair(3, 1000), std::pair(5, 7)}) {
    SCOPED_TRACE(modulus);
    const layout::Range queries{first, first + 700}, keys{first, first + 5300};
    const Options options{.mask = parse(fmt::format("(q - kv) % {} == 1", modulus))};
    const Tensor q = random_tensor(1, DType::f32, {2, 2, queries.count(), 8}),
                 k = random_tensor(2, DType::f32, {1, 1, keys.count(), 8}),
                 v = random_tensor(3, DType::f32, {1, 1, keys.count(), 5}),
                 dout = random_tensor(4, DType::f32, {2, 2, queries.count(), 5});
    const ConstView key_view = k, value_view = v;
    const run::TensorKeys source(key_view, value_view, first);
    test::DirectRun run(options, DType::f32, 8, 5);
    run::Scratch scratch;
    const layout::Layout layout = run.build(
        {2, 2, queries, keys}, 20, {.kind = layout::Order::Kind::residue, .modulus = modulus});
    ASSERT_TRUE(plan::key_classes(layout).has_value());
    EXPECT_FALSE(plan::schedule_backward(layout, {1, 1}, {}).completes_dq);
    const test::Rows rows = run.forward(q, source, layout, scratch);
    const auto got = run.backward(q, source, rows, dout, layout, scratch, *tbb_executor(3));
    run.by_chunks = true;
    const auto expected = run.backward(q, source, rows, dout, layout, scratch);
    EXPECT_TRUE(test::same_bits(got.dq, expected.dq));
    EXPECT_TRUE(test::same_bits(got.dk, expected.dk));
    EXPECT_TRUE(test::same_bits(got.dv, expected.dv));
  }
}

}  // namespace
}  // namespace treadle
