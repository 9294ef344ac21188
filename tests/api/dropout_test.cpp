// Dropout in kernels: against loops that ask treadle::keeps, and the promise of equal bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/make_cpu.h"
#include "plain_attention.h"
#include "plan/target.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

using test::random_tensor;
using test::same_bits;

constexpr Dropout some{.probability = 0.25, .seed = 0x1234'5678'9abc'def0, .offset = 77};
constexpr double infinity = std::numeric_limits<double>::infinity();

struct DropoutCase {
  std::string mask = "true";
  std::int64_t queries = 50, keys = 70;
  DType type = DType::f32;
  std::string target = {};
  Dropout dropout = some;
};

std::function<bool(std::int64_t, std::int64_t, std::int64_t, std::int64_t)> plain_mask(
    const std::string& text) {
  if (text == "kv > q + 5") return [](auto, auto, auto q, auto kv) { return kv > q + 5; };
  if (text == "q >= kv") return [](auto, auto, auto q, auto kv) { return q >= kv; };
  if (text == "(q - kv) % 7 == 0")
    return [](auto, auto, auto q, auto kv) { return (q - kv) % 7 == 0; };
  if (text == "q >= kv && (q - kv < 8 || (q - kv) % 16 == 0)") {
    return
        [](auto, auto, auto q, auto kv) { return q >= kv && (q - kv < 8 || (q - kv) % 16 == 0); };
  }
  return {};
}

void expect_like_the_definition(const DropoutCase& c) {
  SCOPED_TRACE(testing::Message() << c.mask << ", " << c.queries << " queries, " << c.keys
                                  << " keys, " << name_of(c.type) << " " << c.target);
  const Tensor q = random_tensor(1, c.type, {2, 4, c.queries, 24});
  const Tensor k = random_tensor(2, c.type, {2, 2, c.keys, 24});
  const Tensor v = random_tensor(3, c.type, {2, 2, c.keys, 20});
  test::Plain plain(q, k, v);
  plain.dropout = c.dropout;
  plain.mask = plain_mask(c.mask);
  const test::Plain::Result expected = plain.run();
  Options options;
  options.mask = parse(c.mask);
  options.target = c.target;
  const Forward got =
      compile(options).forward({q, k, v}, {.lse = true, .max = true, .dropout = c.dropout});
  test::expect_near(got.out, expected.out, c.type == DType::bf16 ? 2e-2 : 1e-5);
  test::expect_near(got.lse, expected.lse, 1e-5);
  test::expect_near(got.max, expected.max, 1e-5);
}

TEST(KernelDropout, LikeTheDefinition) {
  for (const char* mask : {"true", "q >= kv", "kv > q + 5", "(q - kv) % 7 == 0",
                           "q >= kv && (q - kv < 8 || (q - kv) % 16 == 0)"}) {
    for (const DType type : {DType::f32, DType::f64, DType::bf16}) {
      for (const std::int64_t queries : {1, 3, 50})
        expect_like_the_definition({.mask = mask, .queries = queries, .type = type});
    }
  }
  for (const std::int64_t queries : {2, 20})
    expect_like_the_definition({.queries = queries, .keys = 2500});
  expect_like_the_definition({.dropout = {.probability = 0.9, .seed = 1}});
  expect_like_the_definition({.dropout = {.probability = 1e-9, .seed = 1}});
}

TEST(KernelDropout, OnEveryTarget) {
  for (const std::string& target : plan::runnable_targets()) {
    for (const DType type : {DType::f32, DType::f64}) {
      expect_like_the_definition({.mask = "q >= kv", .type = type, .target = target});
      expect_like_the_definition({.queries = 2, .type = type, .target = target});
    }
  }
}

class KernelDropoutBits : public testing::Test {
 protected:
  Tensor q = random_tensor(1, DType::f32, {3, 4, 60, 24});
  Tensor k = random_tensor(2, DType::f32, {3, 2, 2300, 24});
  Tensor v = random_tensor(3, DType::f32, {3, 2, 2300, 24});
  Tensor dout = random_tensor(4, DType::f32, {3, 4, 60, 24});
  Call call{.lse = true, .max = true, .dropout = some};

  // Query m of all entries and heads, or some of them.
  static ConstView rows(const Tensor& of, std::int64_t m, std::int64_t count) {
    const ConstView all = of;
    return {static_cast<const float*>(all.data()) + m * all.stride(2),
            DType::f32,
            {all.size(0), all.size(1), count, all.size(3)},
            all.strides()};
  }
};

TEST_F(KernelDropoutBits, NothingIsDroppedForZero) {
  const Attention attention = compile({});
  call.dropout.probability = 0;
  const Forward zero = attention.forward({q, k, v}, call);
  const Forward none = attention.forward({q, k, v}, {.lse = true, .max = true});
  EXPECT_TRUE(same_bits(zero.out, none.out));
  EXPECT_TRUE(same_bits(zero.lse, none.lse));
}

TEST_F(KernelDropoutBits, LseAndMaxAreThoseWithout) {
  for (const std::int64_t queries : {2, 60}) {
    for (const double p : {0.25, 1.0}) {
      const Attention attention = compile({});
      call.dropout.probability = p;
      const ConstView some_q = rows(q, 0, queries);
      const Forward with = attention.forward({some_q, k, v}, call);
      const Forward without = attention.forward({some_q, k, v}, {.lse = true, .max = true});
      EXPECT_TRUE(same_bits(with.lse, without.lse));
      EXPECT_TRUE(same_bits(with.max, without.max));
    }
  }
}

TEST_F(KernelDropoutBits, AllIsDroppedForOne) {
  const Attention attention = compile({});
  call.dropout.probability = 1;
  for (const std::int64_t queries : {1, 60}) {
    const ConstView some_q = rows(q, 0, queries), some_dout = rows(dout, 0, queries);
    const Forward y = attention.forward({some_q, k, v}, call);
    const Backward g =
        attention.backward({some_q, k, v}, {y.out, y.lse}, some_dout, std::nullopt, call);
    for (const Tensor* zeros : {&y.out, &g.dq, &g.dk, &g.dv})
      for (const float x : zeros->data<float>()) ASSERT_EQ(x, 0);
  }
}

TEST_F(KernelDropoutBits, DoNotDependOnThreads) {
  for (const char* mask : {"true", "q >= kv - 2200", "kv % 5 == 0 || kv - q < 70"}) {
    Options options;
    options.mask = parse(mask);
    const Attention attention = compile(options);
    call.executor = serial_executor();
    const Forward y = attention.forward({q, k, v}, call);
    const Backward g = attention.backward({q, k, v}, {y.out, y.lse}, dout, std::nullopt, call);
    for (int threads = 2; threads <= 4; ++threads) {
      call.executor = tbb_executor(threads);
      const Forward other = attention.forward({q, k, v}, call);
      EXPECT_TRUE(same_bits(other.out, y.out));
      const Backward h = attention.backward({q, k, v}, {y.out, y.lse}, dout, std::nullopt, call);
      EXPECT_TRUE(same_bits(h.dq, g.dq));
      EXPECT_TRUE(same_bits(h.dk, g.dk));
      EXPECT_TRUE(same_bits(h.dv, g.dv));
    }
  }
}

// Rows alone, few and among others: other tiles, and keys in the lanes.
TEST_F(KernelDropoutBits, RowsKeepTheirs) {
  for (const char* mask : {"true", "q >= kv - 2200", "(q - kv) % 3 == 0"}) {
    Options options;
    options.mask = parse(mask);
    const Attention attention = compile(options);
    const Forward all = attention.forward({q, k, v}, call);
    for (const std::int64_t count : {1, 3, 9, 20}) {
      for (const std::int64_t first : {0, 17, 40}) {
        Call own = call;
        own.q_offsets = {first};
        const Forward few = attention.forward({rows(q, first, count), k, v}, own);
        for (std::int64_t b = 0; b < 3; ++b) {
          for (std::int64_t h = 0; h < 4; ++h) {
            for (std::int64_t m = 0; m < count; ++m) {
              ASSERT_EQ(few.lse.at<float>({b, h, m}), all.lse.at<float>({b, h, first + m}));
              for (std::int64_t d = 0; d < 24; ++d)
                ASSERT_EQ(few.out.at<float>({b, h, m, d}), all.out.at<float>({b, h, first + m, d}))
                    << mask << ", " << count << " from " << first << " on";
            }
          }
        }
      }
    }
  }
}

// Keys that begin later, and fewer of them: the same positions are dropped.
TEST_F(KernelDropoutBits, ArePositions) {
  Options options;
  options.mask = parse("kv >= 1100 && kv < 1100 + q");
  const Attention attention = compile(options);
  const Forward all = attention.forward({q, k, v}, call);
  Call own = call;
  own.kv_offsets = {1099};
  const Forward part = attention.forward({q, rows(k, 1099, 77), rows(v, 1099, 77)}, own);
  EXPECT_TRUE(same_bits(part.out, all.out));
}

TEST_F(KernelDropoutBits, SequencesAreBatchEntries) {
  const Attention attention = compile({});
  const std::int64_t sizes[] = {60, 2300};
  Tensor starts[2] = {Tensor(DType::i32, {4}), Tensor(DType::i32, {4})};
  for (std::int64_t i = 0; i < 4; ++i)
    for (const int which : {0, 1})
      starts[which].at<std::int32_t>({i}) = static_cast<std::int32_t>(i * sizes[which]);
  const auto packed = [](const Tensor& of) {
    Tensor all(DType::f32, {of.size(0) * of.size(2), of.size(1), of.size(3)});
    for (std::int64_t b = 0; b < of.size(0); ++b)
      for (std::int64_t h = 0; h < of.size(1); ++h)
        for (std::int64_t m = 0; m < of.size(2); ++m)
          for (std::int64_t d = 0; d < of.size(3); ++d)
            all.at<float>({b * of.size(2) + m, h, d}) = of.at<float>({b, h, m, d});
    return all;
  };
  const Tensor all_q = packed(q), all_k = packed(k), all_v = packed(v), all_dout = packed(dout);
  const Sequences sequences{all_q, starts[0], PackedKeys{all_k, all_v, starts[1]}};
  Call batch = call;
  batch.q_offsets = {2300 - 60};  // queries of sequences are the last ones
  const Forward y = attention.forward({q, k, v}, batch);
  const Forward s = attention.forward(sequences, call);
  EXPECT_TRUE(same_bits(s.out, packed(y.out)));
  const Backward g = attention.backward({q, k, v}, {y.out, y.lse}, dout, std::nullopt, batch);
  const Backward t = attention.backward(sequences, {s.out, s.lse}, all_dout, std::nullopt, call);
  EXPECT_TRUE(same_bits(t.dq, packed(g.dq)));
  EXPECT_TRUE(same_bits(t.dk, packed(g.dk)));
  EXPECT_TRUE(same_bits(t.dv, packed(g.dv)));
}

TEST_F(KernelDropoutBits, BackwardMayRunTheForwardAgain) {
  Options options;
  const Attention keeping = compile(options);
  options.save = Save::nothing;
  const Forward y = keeping.forward({q, k, v}, call);
  const Backward g = keeping.backward({q, k, v}, {y.out, y.lse}, dout, std::nullopt, call);
  const Backward h = compile(options).backward({q, k, v}, {}, dout, std::nullopt, call);
  EXPECT_TRUE(same_bits(h.dq, g.dq));
  EXPECT_TRUE(same_bits(h.dv, g.dv));
}

// Other seeds and offsets, and nothing else, choose others.
TEST_F(KernelDropoutBits, FollowSeedAndOffset) {
  const Attention attention = compile({});
  const Forward y = attention.forward({q, k, v}, call);
  EXPECT_TRUE(same_bits(attention.forward({q, k, v}, call).out, y.out));
  Call other = call;
  ++other.dropout.offset;
  EXPECT_FALSE(same_bits(attention.forward({q, k, v}, other).out, y.out));
  other = call;
  ++other.dropout.seed;
  EXPECT_FALSE(same_bits(attention.forward({q, k, v}, other).out, y.out));
}

// Keys that are gathered: any of eight neighbours may be missing.
TEST(KernelDropout, ListedKeysAreThoseOfTheReference) {
  const Tensor q = random_tensor(1, DType::f32, {1, 2, 50, 16});
  const Tensor k = random_tensor(2, DType::f32, {1, 2, 400, 16});
  const Tensor dout = random_tensor(3, DType::f32, {1, 2, 50, 16});
  constexpr std::int64_t query_block = 10, listed = 60;
  Tensor indices(DType::i32, {1, 2, 50 / query_block, listed});
  std::mt19937_64 random(5);
  for (std::int64_t list = 0; list < indices.count() / listed; ++list) {
    std::vector<std::int32_t> all(400);
    std::iota(all.begin(), all.end(), 0);
    std::ranges::shuffle(all, random);
    std::copy_n(all.begin(), listed, indices.data<std::int32_t>().data() + list * listed);
  }
  const auto run = [&](Backend backend) {
    Options options;
    options.backend = backend;
    const Attention attention = compile(options);
    Call call{.lse = true, .dropout = some};
    call.layout = attention.layout(KeyLists{query_block, 1, indices}, Inputs{q, k, k});
    Forward y = attention.forward({q, k, k}, call);
    Backward g = attention.backward({q, k, k}, {y.out, y.lse}, dout, std::nullopt, call);
    std::vector<Tensor> all;
    for (Tensor* one : {&y.out, &g.dq, &g.dk, &g.dv}) all.push_back(std::move(*one));
    return all;
  };
  const std::vector<Tensor> got = run(Backend::cpu), exact = run(Backend::reference);
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_LT(test::largest_difference(got[i], exact[i]), 1e-5) << "result " << i;
}

TEST(KernelDropout, SinksAreNotDropped) {
  const Tensor q = random_tensor(1, DType::f64, {1, 2, 30, 8});
  const Tensor k = random_tensor(2, DType::f64, {1, 1, 40, 8});
  Tensor sinks(DType::f64, {2});
  sinks.at<double>({0}) = 0.5;
  sinks.at<double>({1}) = 3;
  test::Plain plain(q, k, k);
  plain.dropout = some;
  plain.sinks = {0.5, 3};
  const test::Plain::Result expected = plain.run();
  for (const Backend backend : {Backend::cpu, Backend::reference}) {
    Options options;
    options.backend = backend;
    Call call{.lse = true, .dropout = some};
    call.sinks = sinks;
    const Attention attention = compile(options);
    const Forward y = attention.forward({q, k, k}, call);
    test::expect_near(y.out, expected.out, 1e-10);
    test::expect_near(y.lse, expected.lse, 1e-10);
    const Backward g = attention.backward({q, k, k}, {y.out, y.lse}, q, std::nullopt, call);
    test::Array dlse(Dims{1, 2, 30});
    const test::Array want = plain.gradient({2}, plain.sinks, test::Array(ConstView(q)), dlse);
    test::expect_near(g.dsinks, want, 1e-6);
  }
}

// Where a dropped weight meets an infinity the definition has NaN; where a hidden one does it has not.
TEST(KernelDropout, InfinitiesAreThoseOfTheReference) {
  const Tensor q = random_tensor(1, DType::f32, {1, 2, 40, 8});
  const Tensor k = random_tensor(2, DType::f32, {1, 2, 90, 8});
  Tensor v = random_tensor(3, DType::f32, {1, 2, 90, 8});
  Tensor dout = random_tensor(4, DType::f32, {1, 2, 40, 8});
  v.at<float>({0, 0, 30, 2}) = static_cast<float>(infinity);
  dout.at<float>({0, 1, 7, 3}) = -static_cast<float>(infinity);
  // The last mask is of one term, so that few queries decode.
  const std::vector<std::pair<int, const char*>> cases{{2, "kv % 3 != 0 || q % 2 == 0"},
                                                       {40, "kv % 3 != 0 || q % 2 == 0"},
                                                       {2, "kv > 40 || q % 2 == 0"}};
  for (const auto& [queries, mask] : cases) {
    const auto cut = [&](const Tensor& of) {
      const ConstView all = of;
      return ConstView(all.data(), DType::f32, {1, 2, queries, 8}, all.strides());
    };
    const Inputs inputs{cut(q), k, v};
    const auto run = [&](Backend backend) {
      Options options;
      options.mask = parse(mask);
      options.backend = backend;
      const Attention attention = compile(options);
      const Call call{.lse = true, .dropout = some};
      // Of what a call leaves for the next one nothing may show.
      const Forward without = attention.forward(inputs);
      Forward y = attention.forward(inputs, call);
      EXPECT_TRUE(same_bits(attention.forward(inputs).out, without.out));
      Backward g = attention.backward(inputs, {y.out, y.lse}, cut(dout), std::nullopt, call);
      std::vector<Tensor> all;
      for (Tensor* one : {&y.out, &g.dq, &g.dk, &g.dv}) all.push_back(std::move(*one));
      return all;
    };
    const std::vector<Tensor> got = run(Backend::cpu), exact = run(Backend::reference);
    for (std::size_t i = 0; i < got.size(); ++i) {
      for (std::size_t at = 0; at < got[i].data<float>().size(); ++at) {
        const float x = got[i].data<float>()[at], y = exact[i].data<float>()[at];
        ASSERT_EQ(std::isnan(x), std::isnan(y)) << "result " << i << ", element " << at;
        ASSERT_EQ(std::isinf(x), std::isinf(y)) << "result " << i << ", element " << at;
      }
    }
  }
}

TEST(KernelDropout, PreparedKernelsAreThoseOfCalls) {
  Options options;
  options.score_mod = parse("score * 1.375");  // no other test's kernels
  const Attention attention = compile(options);
  const TensorSpec spec(DType::f32, {1, 2, 40, 24});
  const Call call{.lse = true, .dropout = some};
  attention.prepare({{spec, spec, spec, true}}, call);
  const std::int64_t before = backend::cpu::kernels_made();
  const Tensor q = random_tensor(1, DType::f32, {1, 2, 40, 24});
  const Forward y = attention.forward({q, q, q}, call);
  (void)attention.backward({q, q, q}, {y.out, y.lse}, q, std::nullopt, call);
  EXPECT_EQ(backend::cpu::kernels_made(), before);
  (void)attention.forward({q, q, q}, {});
  EXPECT_GT(backend::cpu::kernels_made(), before);
}

}  // namespace
}  // namespace treadle
