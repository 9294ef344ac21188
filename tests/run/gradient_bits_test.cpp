// The promise of equal bits for dQ, dK, dV and gradients of captures: they do not depend on threads,
// strides, types of copies, or on how keys were put into blocks.
#include <gtest/gtest.h>

#include <memory>

#include "forward_run.h"
#include "fuzz.h"
#include "placed.h"
#include "plan/chunks.h"
#include "random_mods.h"
#include "run/backward.h"
#include "run/query_sum.h"
#include "run/sum_tree.h"

namespace treadle {
namespace {

using test::Random;
using test::random_tensor;

constexpr std::int64_t queries = 500, keys = 1300;

struct GradientCase {
  const char* name;
  // Gradients of one capture of this shape, read by the score mod.
  Dims shape;
  const char* score;
  const char* mask;
  std::int64_t key_batch = 2;

  friend void PrintTo(const GradientCase& c, std::ostream* out) { *out << c.name; }
};

// Masks whose keys lie in short and long runs: in place they are cut into other blocks than copied.
constexpr const char* patchy = "(kv + q // 7) % 50 < 22 || kv % 300 < 40";
constexpr const char* causal = "q + 800 >= kv";

const GradientCase gradient_cases[] = {
    {"one_number", {1}, "score * x[0]", patchy},
    {"slopes", {2}, "score + x[h] * float(kv - q) / 1000.0", causal},
    {"slopes_of_batches", {2, 2}, "score + x[b, h] * float(kv - q) / 1000.0", patchy},
    {"by_query", {queries}, "score + x[q]", patchy},
    {"by_query_scattered", {queries}, "score + x[q * 7 % 100]", patchy},
    {"by_key", {2, keys}, "score + x[h, kv] * 0.5", patchy},
    {"by_key_scattered", {64}, "score + x[kv * 5 % 64]", causal},
    {"relative", {queries + keys}, "score + x[q - kv + 1299]", patchy},
    {"relative_of_heads", {2, queries + keys}, "score + x[h, kv - q + 499]", causal},
    {"pairs", {queries, keys}, "score + x[q, kv]", patchy},
    {"pairs_of_heads", {2, queries, keys}, "score + x[h, q, kv]", causal},
    {"not_separable", {queries + keys}, "score + x[abs(q - kv)]", patchy},
    {"chosen_by_score", {9}, "score + x[int(clamp(score, -4.0, 4.0)) + 4]", patchy},
    {"twice", {queries + keys}, "score * x[q] + x[q - kv + 1299]", patchy},
    {"shared_keys", {queries + keys}, "score + x[q - kv + 1299] * 0.5", patchy, 1},
    {"pairs_of_shared_keys", {queries, keys}, "score + x[q, kv]", causal, 1},
};

struct Gradients {
  Backward all;

  [[nodiscard]] bool operator==(const Gradients& other) const {
    return test::same_bits(all.dq, other.all.dq) && test::same_bits(all.dk, other.all.dk) &&
           test::same_bits(all.dv, other.all.dv) &&
           test::same_bits(all.captures.at(0).gradient, other.all.captures.at(0).gradient);
  }
};

class GradientBits : public testing::TestWithParam<GradientCase> {
 protected:
  const GradientCase& c = GetParam();
  Tensor x = random_tensor(9, DType::f32, c.shape);
  Tensor q = random_tensor(1, DType::f32, {2, 2, queries, 8});
  Tensor k = random_tensor(2, DType::f32, {c.key_batch, 1, keys, 8});
  Tensor v = random_tensor(3, DType::f32, {c.key_batch, 1, keys, 5});
  Tensor dout = random_tensor(4, DType::f32, {2, 2, queries, 5});

  [[nodiscard]] Attention attention(const std::string& mask) const {
    Options options;
    options.score_mod = parse(c.score, {{"x", x}});
    options.mask = parse(mask);
    options.gradients = {"x"};
    return compile(options);
  }
  [[nodiscard]] Attention attention() const { return attention(c.mask); }
  static Gradients run(const Attention& attention, const Inputs& inputs, const ConstView& dout,
                       std::shared_ptr<Executor> executor) {
    const Call call{.executor = std::move(executor), .lse = true};
    const Forward y = attention.forward(inputs, call);
    return {attention.backward(inputs, {y.out, y.lse}, dout, {}, call)};
  }
  [[nodiscard]] Gradients expected() const {
    return run(attention(), {q, k, v}, dout, serial_executor());
  }
};

INSTANTIATE_TEST_SUITE_P(Cases, GradientBits, testing::ValuesIn(gradient_cases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(GradientBits, AnyNumberOfThreads) {
  const Gradients one = expected();
  for (const int threads : {2, 5}) {
    EXPECT_TRUE(run(attention(), {q, k, v}, dout, tbb_executor(threads)) == one) << threads;
    const auto shuffled =
        std::make_shared<test::ShuffledExecutor>(threads, test::fuzz_seed(threads));
    EXPECT_TRUE(run(attention(), {q, k, v}, dout, shuffled) == one) << threads;
  }
}

TEST_P(GradientBits, AnyMemory) {
  const Gradients one = expected();
  const std::uint64_t seed = test::fuzz_seed(0);
  SCOPED_TRACE(test::seed_text(seed));
  Random random = test::rng(seed);
  const auto moved = [&](const Tensor& tensor) {
    test::Placed place = test::placed(random, tensor.dtype(), tensor.shape(), {.contiguous = 0});
    base::copy(place.view, tensor);
    return place;
  };
  for (int i = 0; i < 2; ++i) {
    const test::Placed pq = moved(q), pk = moved(k), pv = moved(v), pd = moved(dout);
    EXPECT_TRUE(run(attention(), {pq.view, pk.view, pv.view}, pd.view, tbb_executor(2)) == one)
        << to_string(pk.view.strides());
  }
}

// Sixteen-bit keys are copied; the sums are those of the same numbers in f32.
TEST_P(GradientBits, SixteenBitKeysAsThirtyTwo) {
  const Tensor k16 = base::convert(k, DType::bf16), v16 = base::convert(v, DType::bf16);
  const Tensor k32 = base::convert(k16, DType::f32), v32 = base::convert(v16, DType::f32);
  const Gradients narrow = run(attention(), {q, k16, v16}, dout, tbb_executor(2));
  const Gradients wide = run(attention(), {q, k32, v32}, dout, tbb_executor(2));
  EXPECT_TRUE(test::same_bits(narrow.all.dq, wide.all.dq));
  EXPECT_TRUE(test::same_bits(narrow.all.dk, base::convert(wide.all.dk, DType::bf16)));
  EXPECT_TRUE(test::same_bits(narrow.all.dv, base::convert(wide.all.dv, DType::bf16)));
  EXPECT_TRUE(test::same_bits(narrow.all.captures[0].gradient, wide.all.captures[0].gradient));
}

// Keys that nobody sees change nothing, and have gradients of zero.
TEST_P(GradientBits, LaterKeysThatNobodySees) {
  if (c.shape.back() == keys) return;  // the capture would have another shape
  const Gradients one = expected();
  const auto longer = [&](const Tensor& t) {
    Dims shape = t.shape();
    shape[2] += 500;
    Tensor all = random_tensor(11, t.dtype(), shape);
    const ConstView whole = all;
    base::copy(View(all.view().data(), t.dtype(), t.shape(), whole.strides()), t);
    return all;
  };
  const Tensor more_k = longer(k), more_v = longer(v);
  const Attention hidden = attention(std::string("kv < 1300 && (") + c.mask + ")");
  const Gradients got = run(hidden, {q, more_k, more_v}, dout, tbb_executor(2));
  const auto first = [&](const Tensor& t, const Tensor& like) {
    const ConstView whole = t;
    return base::convert(ConstView(whole.data(), t.dtype(), like.shape(), whole.strides()),
                         t.dtype());
  };
  EXPECT_TRUE(test::same_bits(got.all.dq, one.all.dq));
  EXPECT_TRUE(test::same_bits(first(got.all.dk, k), one.all.dk));
  EXPECT_TRUE(test::same_bits(first(got.all.dv, v), one.all.dv));
  EXPECT_TRUE(test::same_bits(got.all.captures[0].gradient, one.all.captures[0].gradient));
}

// --- the tree itself ---------------------------------------------------------------------------

// A tree of leaves that touch some rows, as the definition says: four leaves to a node, four nodes
// to the next, the sixth level joins any number.
std::vector<float> by_definition(const std::vector<std::vector<float>>& leaves) {
  std::vector<std::vector<float>> level = leaves;
  const auto join = [](std::vector<float>& into, const std::vector<float>& from) {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] += from[i];
  };
  for (int depth = 1; level.size() > 1; ++depth) {
    const std::size_t children = depth < 6 ? 4 : level.size();
    std::vector<std::vector<float>> next;
    for (std::size_t i = 0; i < level.size(); ++i) {
      if (i % children == 0) {
        next.push_back(level[i]);
      } else {
        join(next.back(), level[i]);
      }
    }
    level = std::move(next);
  }
  return level.empty() ? std::vector<float>() : level.front();
}

// The next two: what docs/numerics.md says the tree takes.
TEST(SumTree, OfSixtyFourThousandTokensIsSmall) {
  constexpr std::int64_t tokens = 1 << 16, half_megabyte = 1 << 19;  // dK and dV of a chunk
  for (const auto& [target, times] : {std::pair("icelake-server", 5), std::pair("haswell", 6)}) {
    const plan::TilePlan plan = plan::plan_tile(plan::find_target(target), DType::f32, 64, 64, 3);
    const std::int64_t leaves = tokens / plan.width() / plan::tiles_per_leaf(plan);
    const std::int64_t bytes = run::measured([&](run::Carver& carver) {
      for (int sum = 0; sum < 2; ++sum)
        run::QuerySum<float>().carve(carver, plan, 64, plan::longest_chunk(tokens), leaves);
    });
    EXPECT_GE(bytes, times * half_megabyte) << target;
    EXPECT_LE(bytes, (times + 0.5) * half_megabyte) << target;
  }
}

TEST(SumTree, OfAMillionTokensIsSmall) {
  for (const char* target : {"haswell", "icelake-server"}) {
    const plan::TilePlan plan = plan::plan_tile(plan::find_target(target), DType::f32, 128, 128, 3);
    constexpr std::int64_t tokens = 1 << 20;
    const std::int64_t leaves = tokens / plan.width() / plan::tiles_per_leaf(plan);
    const std::int64_t bytes =
        run::backward_scratch(plan, plan::longest_chunk(tokens), leaves, 0, {});
    EXPECT_LE(bytes, 128 << 20) << target;
    EXPECT_GE(bytes, 112 << 20) << target;
  }
}

TEST(SumTree, IsTheTreeOfTheDefinition) {
  constexpr std::int64_t rows = 23, length = 3;
  for (const std::int64_t count : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 200, 1025, 4097, 9000}) {
    SCOPED_TRACE(count);
    Random random(static_cast<std::uint64_t>(count));
    run::SumTree<float> tree;
    run::Workspace memory;
    memory.reserve({.bytes = static_cast<std::size_t>(run::measured(
                        [&](run::Carver& carver) { tree.carve(carver, rows, length, count); }))});
    run::Carver carver(memory.memory());
    tree.carve(carver, rows, length, count);
    const std::vector<float> nothing(static_cast<std::size_t>(rows * length));
    for (const bool skips : {false, false, true, true}) {
      tree.clear();
      std::vector<std::vector<float>> leaves;
      if (skips) {
        leaves.resize(static_cast<std::size_t>(count / 3), nothing);
        tree.skip(count / 3);
      }
      for (auto i = std::ssize(leaves); i < count; ++i) {
        leaves.emplace_back(static_cast<std::size_t>(rows * length));
        for (int touches = static_cast<int>(random() % 4); touches > 0; --touches) {
          const auto begin = static_cast<std::int64_t>(random() % rows);
          const auto end = std::min(rows, begin + 1 + static_cast<std::int64_t>(random() % 6));
          tree.touch(begin, end);
          for (std::int64_t at = begin * length; at < end * length; ++at) {
            const float add = static_cast<float>(test::random_real(random, -1, 1));
            leaves.back()[static_cast<std::size_t>(at)] += add;
            tree.leaf()[at] += add;
          }
        }
        tree.close_leaf();
        // Leaves in which nobody touches anything.
        const auto skipped = std::min(count - i - 1, static_cast<std::int64_t>(random() % 40));
        if (!skips || random() % 3 != 0) continue;
        tree.skip(skipped);
        leaves.resize(leaves.size() + static_cast<std::size_t>(skipped), nothing);
        i += skipped;
      }
      const float* sum = tree.finish();
      EXPECT_EQ(std::vector<float>(sum, sum + rows * length), by_definition(leaves));
    }
  }
}

}  // namespace
}  // namespace treadle
