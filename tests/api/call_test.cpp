// What may change from call to call, threads, and what shapes() says beforehand.
#include <gtest/gtest.h>

#include <thread>

#include "plain_attention.h"
#include "treadle/attention.h"
#include "treadle/memory.h"
#include "treadle/mods.h"

namespace treadle {
namespace {

using test::random_tensor;
using test::same_bits;

TEST(Rebinding, OtherValues) {
  const Tensor x = random_tensor(1, DType::f32, {1, 2, 5, 4});
  const Tensor slopes = random_tensor(2, DType::f32, {2});
  const Tensor others = random_tensor(3, DType::f32, {2});
  Options options;
  options.score_mod = mods::alibi({"slopes", slopes});
  const Attention attend = compile(options);
  options.score_mod = mods::alibi({"slopes", others});
  const Call call{.captures = {{"slopes", others}}, .executor = {}};
  EXPECT_TRUE(same_bits(attend.forward({x, x, x}, call).out, attention({x, x, x}, options).out));
  EXPECT_FALSE(same_bits(attend.forward({x, x, x}, call).out, attend.forward({x, x, x}).out));
}

TEST(Rebinding, AScalar) {
  const Tensor x = random_tensor(1, DType::f32, {1, 1, 6, 4});
  Options options;
  options.mask = mods::window({"size", 100});
  const Attention attend = compile(options);
  EXPECT_TRUE(same_bits(attend.forward({x, x, x}).out, attention({x, x, x}).out));
  options.mask = mods::window(2);
  const Call call{.captures = {{"size", 2}}, .executor = {}};
  EXPECT_TRUE(same_bits(attend.forward({x, x, x}, call).out, attention({x, x, x}, options).out));
}

TEST(Rebinding, OtherLengths) {
  const Tensor shorter = random_tensor(1, DType::f32, {1, 1, 4, 4});
  const Tensor longer = random_tensor(2, DType::f32, {1, 1, 9, 4});
  std::vector<std::int32_t> ids{0, 0, 1, 1};
  std::vector<std::int32_t> more{0, 0, 0, 1, 1, 2, 2, 2, 2};
  Options options;
  options.mask = mods::document({"ids", View(ids.data(), {4})});
  const Attention attend = compile(options);
  const Call call{.captures = {{"ids", View(more.data(), {9})}}, .executor = {}};
  options.mask = mods::document({"ids", View(more.data(), {9})});
  EXPECT_TRUE(same_bits(attend.forward({longer, longer, longer}, call).out,
                        attention({longer, longer, longer}, options).out));
  EXPECT_EQ(attend.forward({shorter, shorter, shorter}).out.size(2), 4);
}

TEST(Rebinding, ABufferIsReadWhenCalled) {
  const Tensor x = random_tensor(1, DType::f32, {1, 2, 5, 4});
  Tensor gain(DType::f32, {});
  Options options;
  options.score_mod = [view = ConstView(gain)](Score s, Index, Index, Index, Index) {
    return s * view;
  };
  const Attention attend = compile(options);
  gain.at<float>({}) = 1;
  EXPECT_LT(test::largest_difference(attend.forward({x, x, x}).out, attention({x, x, x}).out),
            1e-6);
}

TEST(Rebinding, GradientsHaveTheShapeOfTheCall) {
  const Tensor x = random_tensor(1, DType::f64, {1, 2, 5, 4});
  const Tensor small(DType::f64, {2, 5});
  const Tensor large(DType::f64, {7, 9});
  Options options;
  options.score_mod = [table = Capture("table", small)](Score s, Index, Index h, Index q, Index) {
    return s + table(h, q);
  };
  options.gradients = {"table"};
  const Attention attend = compile(options);
  const Call call{.captures = {{"table", large}}, .lse = true};
  const Forward y = attend.forward({x, x, x}, call);
  EXPECT_EQ(attend.backward({x, x, x}, {y.out, y.lse}, x, {}, call).of("table").shape(),
            (Dims{7, 9}));
  EXPECT_EQ(attend.backward({x, x, x}, {y.out, y.lse}, x).of("table").shape(), (Dims{2, 5}));
}

TEST(Inspection, CapturesInTheirOrder) {
  const Tensor slopes(DType::bf16, {2});
  const Tensor ids(DType::i32, {2, 5});
  Options options;
  options.score_mod = mods::alibi({"slopes", slopes});
  options.mask = [&](Index b, Index, Index q, Index kv) { return ids(b, q) == ids(b, kv); };
  options.gradients = {"slopes"};
  const std::vector<CaptureInfo> captures = compile(options).captures();
  ASSERT_EQ(captures.size(), 2u);
  EXPECT_EQ(captures[0].name, "slopes");
  EXPECT_EQ(captures[0].dtype, DType::bf16);
  EXPECT_EQ(captures[0].rank, 1);
  EXPECT_TRUE(captures[0].gradient);
  EXPECT_EQ(captures[1].name, "c0");
  EXPECT_EQ(captures[1].dtype, DType::i32);
  EXPECT_EQ(captures[1].rank, 2);
  EXPECT_FALSE(captures[1].gradient);
}

TEST(Inspection, Describe) {
  const Tensor gate(DType::f32, {2});
  Options options;
  options.score_mod = [gate = Capture("gate", gate)](Score s, Index, Index h, Index, Index) {
    return s * gate(h) + 0;
  };
  options.mask = mods::causal() & MaskMod();
  options.gradients = {"gate"};
  EXPECT_EQ(compile(options).describe(),
            "score mod:\n  score * gate[h] + 0.0\n"
            "mask:\n  q >= kv\n"
            "derivative:\n  dscore = grad * gate[h]\n  gate[h] += grad * score\n");
}

class Shapes : public testing::Test {
 protected:
  Tensor q = random_tensor(1, DType::f16, {2, 6, 5, 4});
  Tensor k = random_tensor(2, DType::f64, {1, 2, 7, 4});
  Tensor v = random_tensor(3, DType::f32, {1, 2, 7, 3});

  static void expect_same(const TensorSpec& spec, const Tensor& tensor) {
    EXPECT_EQ(spec.dtype, tensor.dtype());
    EXPECT_EQ(spec.shape, tensor.shape());
    EXPECT_EQ(spec.strides, ConstView(tensor).strides());
  }
};

TEST_F(Shapes, AreThoseOfTheResults) {
  Options options;
  const Attention attend = compile(options);
  // From types and shapes alone: there is no data to touch.
  const treadle::Shapes shapes = attend.shapes(
      {DType::f16, {2, 6, 5, 4}}, {DType::f64, {1, 2, 7, 4}}, {DType::f32, {1, 2, 7, 3}});
  const Forward y = attend.forward({q, k, v}, {.lse = true, .max = true});
  expect_same(shapes.out, y.out);
  expect_same(shapes.lse, y.lse);
  expect_same(shapes.max, y.max);
  const Backward g = attend.backward({q, k, v}, {y.out, y.lse}, y.out);
  expect_same(shapes.dq, g.dq);
  expect_same(shapes.dk, g.dk);
  expect_same(shapes.dv, g.dv);
  EXPECT_GT(shapes.forward_scratch, 0);
  EXPECT_GT(shapes.backward_scratch, 0);
}

TEST_F(Shapes, OfTensorsLargerThanAnyMemory) {
  const std::int64_t longest = std::numeric_limits<std::int32_t>::max();
  const TensorSpec huge(DType::f32, {1, 1, longest, longest});
  const treadle::Shapes shapes = compile({}).shapes(huge, huge, huge);
  EXPECT_EQ(shapes.out.shape, huge.shape);
  EXPECT_GT(shapes.forward_scratch, 0);
}

// What a call takes, tasks that are cut and states between passes included, is what was said, at most.
TEST_F(Shapes, SayHowMuchMemoryACallTakes) {
  struct Kind {
    MaskMod mask;
    DType type;
    std::int64_t batch, heads, key_heads, queries, keys;
  };
  const MaskMod causal = [](Index, Index, Index m, Index n) { return n <= m; };
  const MaskMod two_terms = [](Index, Index, Index m, Index n) {
    return n <= m && (m - n < 32 || (m - n) % 64 == 0);
  };
  const MaskMod last = [](Index, Index, Index, Index n) { return n >= 0; };
  for (const Kind& kind :
       {Kind{causal, DType::f32, 1, 1, 1, 4096, 4096},
        Kind{causal, DType::bf16, 1, 2, 1, 3000, 3000},
        Kind{two_terms, DType::f32, 1, 2, 2, 2048, 2048}, Kind{last, DType::f32, 1, 8, 2, 1, 20000},
        Kind{last, DType::bf16, 1, 8, 8, 3, 70000}, Kind{last, DType::f64, 2, 4, 1, 2, 9000},
        Kind{last, DType::i8, 1, 16, 2, 1, 5000}}) {
    Options own;
    own.mask = kind.mask;
    const Attention attend = compile(own);
    const DType queries = kind.type == DType::i8 ? DType::f32 : kind.type;
    const Tensor q_own(queries, {kind.batch, kind.heads, kind.queries, 16});
    const Tensor k_own(kind.type, {kind.batch, kind.key_heads, kind.keys, 16});
    const auto spec = [](const Tensor& tensor) {
      return TensorSpec(tensor.dtype(), tensor.shape());
    };
    const treadle::Shapes shapes = attend.shapes(spec(q_own), spec(k_own), spec(k_own));
    for (const int threads : {1, 2, 4}) {
      release_memory();
      (void)attend.forward({q_own, k_own, k_own}, {.executor = tbb_executor(threads)});
      const std::int64_t taken = release_memory();
      const std::int64_t said = threads * shapes.forward_scratch + shapes.forward_kept;
      EXPECT_LE(taken, said) << kind.queries << " x " << kind.keys << ", " << threads;
    }
  }
}

class Threads : public testing::Test {
 protected:
  Tensor q = random_tensor(1, DType::f32, {3, 4, 17, 8});
  Tensor k = random_tensor(2, DType::f32, {3, 2, 23, 8});
  Tensor slopes = random_tensor(3, DType::f32, {4});
  Options options;

  Threads() {
    options.mask = [](Index, Index, Index m, Index n) { return m + 6 >= n; };
    options.score_mod = mods::alibi({"slopes", slopes});
  }

  struct Both {
    Forward y;
    Backward g;
  };
  Both run(const Attention& attend, std::shared_ptr<Executor> executor) const {
    const Call call{.executor = std::move(executor), .lse = true};
    Forward y = attend.forward({q, k, k}, call);
    Backward g = attend.backward({q, k, k}, {y.out, y.lse}, q, {}, call);
    return {std::move(y), std::move(g)};
  }
  static bool same(const Both& a, const Both& b) {
    bool all = same_bits(a.y.out, b.y.out) && same_bits(a.y.lse, b.y.lse) &&
               same_bits(a.g.dq, b.g.dq) && same_bits(a.g.dk, b.g.dk) && same_bits(a.g.dv, b.g.dv);
    for (std::size_t i = 0; i < a.g.captures.size(); ++i) {
      all = all && same_bits(a.g.captures[i].gradient, b.g.captures[i].gradient);
    }
    return all;
  }
};

TEST_F(Threads, AnyNumberGivesTheSameBits) {
  for (const bool gradients : {false, true}) {
    options.gradients = gradients ? std::vector<std::string>{"slopes"} : std::vector<std::string>{};
    const Attention attend = compile(options);
    const Both expected = run(attend, serial_executor());
    for (const int threads : {1, 2, 3, 7}) {
      EXPECT_TRUE(same(run(attend, tbb_executor(threads)), expected)) << threads << " threads";
    }
    EXPECT_TRUE(same(run(attend, nullptr), expected));
  }
}

TEST_F(Threads, ManyCallsAtOnce) {
  options.gradients = {"slopes"};
  const Attention attend = compile(options);
  const Both expected = run(attend, serial_executor());
  std::vector<char> agreed(8);
  std::vector<std::thread> callers;
  for (std::size_t i = 0; i < agreed.size(); ++i) {
    callers.emplace_back([&, i] {
      const Attention mine = i % 2 == 0 ? attend : compile(options);
      agreed[i] = same(run(mine, i % 3 == 0 ? serial_executor() : nullptr), expected) ? 1 : 0;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(agreed, std::vector<char>(agreed.size(), 1));
}

}  // namespace
}  // namespace treadle
