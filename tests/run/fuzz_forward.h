// One round of the forward fuzz: random mods on random shapes, types, strides and layouts, against
// the definition in f64, and against itself laid out in other ways.
//
//   FuzzCount count;
//   fuzz_forward(seed, {.target = "haswell", .problems = 4, .layouts = 6}, count);
#pragma once

#include <gtest/gtest.h>

#include "close.h"
#include "fuzz.h"
#include "ir/print.h"
#include "placed.h"
#include "random_mods.h"

namespace treadle::test {

struct FuzzRound {
  std::string target = {};
  int problems = 4, layouts = 4;  // for a pair of mods; for a problem
};

struct FuzzCount {
  std::int64_t combinations = 0;
  Compared compared;
};

namespace detail {

struct Types {
  DType q, k, v;
};

inline Types random_types(Random& random) {
  constexpr std::array all{DType::f64, DType::f32, DType::bf16, DType::f16};
  const double kind = random_real(random, 0, 1);
  if (kind < 0.5) return {DType::f32, DType::f32, DType::f32};
  if (kind < 0.7) return {DType::f64, DType::f64, DType::f64};
  if (kind < 0.8) return {DType::bf16, DType::bf16, DType::bf16};
  return {one_of(random, all), one_of(random, all), one_of(random, all)};
}

inline layout::Order random_order(Random& random) {
  using Kind = layout::Order::Kind;
  const std::int64_t modulus = random_int(random, 1, 50);
  switch (random_int(random, 0, 5)) {
    case 0: return {.kind = Kind::blocks, .modulus = modulus};
    case 1: return {.kind = Kind::residue, .modulus = modulus};
    case 2:
      return {.kind = Kind::rectangle,
              .modulus = modulus,
              .rows = random_int(random, 1, 4),
              .columns = random_int(random, 1, 6)};
    default: return {};
  }
}

// The memory of one problem.
struct Problem {
  Placed q, k, v;
  double scale = 1;
  [[nodiscard]] Inputs inputs() const { return {q.view, k.view, v.view}; }
};

inline Problem random_problem(Random& random, const Types& types, std::int64_t dim,
                              std::int64_t value_dim, std::int64_t longest) {
  const std::int64_t batch = random_int(random, 1, 3);
  const std::int64_t key_heads = random_int(random, 1, 2);
  const std::int64_t heads = key_heads * random_int(random, 1, 3);
  const std::int64_t key_batch = chance(random, 0.2) ? 1 : batch;
  const bool edge = chance(random, 0.1);
  const bool many_keys = longest > 1200 && chance(random, 0.3);
  const std::int64_t queries =
      edge ? random_int(random, 0, 2) : random_int(random, 1, many_keys ? 20 : 90);
  const std::int64_t keys = chance(random, 0.1) ? random_int(random, 0, 2)
                            : many_keys         ? random_int(random, 1000, longest - 1)
                                                : random_int(random, 1, 150);
  const Placement read{.repeats = true};
  Problem problem{placed(random, types.q, {batch, heads, queries, dim}, read),
                  placed(random, types.k, {key_batch, key_heads, keys, dim}, read),
                  placed(random, types.v, {key_batch, key_heads, keys, value_dim}, read)};
  fill_eighths(random, problem.q.view);
  fill_eighths(random, problem.k.view);
  fill_reals(random, problem.v.view);
  problem.scale = std::exp2(static_cast<double>(random_int(random, -4, -1)));
  return problem;
}

inline std::string text_of(const Mods& mods, const Inputs& inputs) {
  return fmt::format(
      "score mod {}\nmask {}\nq {} {} strides {}, k {} {} strides {}, v {} {} strides {}",
      ir::to_text(mods.score_mod), ir::to_text(mods.mask), name_of(inputs.q.dtype()),
      to_string(inputs.q.shape()), to_string(inputs.q.strides()), name_of(inputs.k.dtype()),
      to_string(inputs.k.shape()), to_string(inputs.k.strides()), name_of(inputs.v.dtype()),
      to_string(inputs.v.shape()), to_string(inputs.v.strides()));
}

}  // namespace detail

inline void fuzz_forward(std::uint64_t seed, const FuzzRound& wanted, FuzzCount& count) {
  Random random = rng(seed);
  const std::int64_t longest = chance(random, 0.2) ? 2500 : 200;
  const Mods mods = random_mods(random, {.longest = longest});
  const detail::Types types = detail::random_types(random);
  const std::int64_t dim = random_int(random, 1, 24);
  const std::int64_t value_dim = chance(random, 0.3) ? random_int(random, 1, 24) : dim;
  const ForwardRun run(mods, wanted.target);
  const int lanes = run.target().lanes(reference::compute_type(types.q, types.k, types.v));
  const layout::Order other = detail::random_order(random);
  // Few heights for a pair of mods: each may need kernels of its own.
  const std::int64_t height = random_int(random, 1, 4 * lanes);
  const std::int64_t first_height = chance(random, 0.5) ? height : 3 * lanes;
  for (int p = 0; p < wanted.problems; ++p) {
    const detail::Problem problem = detail::random_problem(random, types, dim, value_dim, longest);
    const Inputs inputs = problem.inputs();
    SCOPED_TRACE(detail::text_of(mods, inputs));
    const layout::Extent extent = extent_of(inputs);
    const Rows first =
        run(inputs, problem.scale, run.build(extent, {}, first_height), *serial_executor());
    expect_close(first, run.reference(inputs, problem.scale, DType::f32),
                 run.reference(inputs, problem.scale, DType::f64), count.compared);
    if (testing::Test::HasFatalFailure()) return;
    ++count.combinations;
    for (int i = 1; i < wanted.layouts; ++i) {
      const layout::Order order = chance(random, 0.5) ? layout::Order{} : other;
      const std::int64_t least =
          order.kind == layout::Order::Kind::rectangle ? order.rows * order.columns : 1;
      layout::Layout layout = run.build(extent, order, std::max(least, height));
      if (chance(random, 0.5)) layout = rewritten(layout, random);
      const int threads = static_cast<int>(random_int(random, 1, 7));
      const std::shared_ptr<Executor> executor =
          chance(random, 0.2) ? tbb_executor(threads)
                              : std::make_shared<ShuffledExecutor>(threads, random());
      const Rows again = run(inputs, problem.scale, layout, *executor);
      ASSERT_TRUE(same_rows(first, again))
          << layout::to_text(order) << ", height " << height << ", " << threads << " threads";
      ++count.combinations;
    }
  }
}

}  // namespace treadle::test
