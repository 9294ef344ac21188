// Gradients of queries, keys and values: against the reference in fp64, and bit against bit.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>

#include "base/copy.h"
#include "fuzz.h"
#include "plain_attention.h"
#include "treadle/attention.h"
#include "treadle/mods.h"

namespace treadle {
namespace {

using test::random_int;

struct Problem {
  Tensor q, k, v, dout, dlse;
};

Problem random_problem(std::uint64_t seed, DType dtype, const Dims& q, const Dims& k,
                       std::int64_t value_dim) {
  const auto tensor = [&](std::uint64_t salt, DType type, Dims shape) {
    return base::convert(test::random_tensor(seed * 8 + salt, DType::f64, std::move(shape)), type);
  };
  return {tensor(1, dtype, q), tensor(2, dtype, k), tensor(3, dtype, {k[0], k[1], k[2], value_dim}),
          tensor(4, dtype, {q[0], q[1], q[2], value_dim}),
          tensor(5, dtype == DType::f64 ? DType::f64 : DType::f32, {q[0], q[1], q[2]})};
}

Backward gradients(const Options& given, const Problem& p, bool exact,
                   std::shared_ptr<Executor> executor = {}) {
  Options options = given;
  options.backend = exact ? Backend::reference : Backend::cpu;
  const auto as = [&](const Tensor& t) { return base::convert(t, exact ? DType::f64 : t.dtype()); };
  const Tensor q = as(p.q), k = as(p.k), v = as(p.v), dout = as(p.dout), dlse = as(p.dlse);
  const Attention attention = compile(options);
  const Call call{.executor = std::move(executor), .lse = true};
  const Forward y = attention.forward({q, k, v}, call);
  return attention.backward({q, k, v}, {y.out, y.lse}, dout, dlse, call);
}

void expect_close(const Tensor& seen, const Tensor& exact, double tolerance, const char* name) {
  double largest = 1e-3;
  for (const double x : exact.data<double>()) largest = std::max(largest, std::abs(x));
  EXPECT_LE(test::largest_difference(seen, exact), tolerance * largest) << name;
}

void expect_close(const Backward& seen, const Backward& exact, double tolerance) {
  expect_close(seen.dq, exact.dq, tolerance, "dq");
  expect_close(seen.dk, exact.dk, tolerance, "dk");
  expect_close(seen.dv, exact.dv, tolerance, "dv");
}

bool same(const Backward& a, const Backward& b) {
  return test::same_bits(a.dq, b.dq) && test::same_bits(a.dk, b.dk) && test::same_bits(a.dv, b.dv);
}

// Owned by the mods that read them.
std::vector<Options> mods_for(std::int64_t heads, std::int64_t queries, std::int64_t keys) {
  auto slopes = std::make_shared<Tensor>(test::random_tensor(77, DType::f32, {heads}));
  auto bias = std::make_shared<Tensor>(test::random_tensor(78, DType::f32, {heads, queries, keys}));
  std::vector<Options> all(8);
  all[1].mask = mods::causal();
  all[2].mask = mods::causal() & mods::window(5);
  all[3].mask = mods::dilated(3);
  all[4].score_mod = mods::alibi({"slopes", slopes});
  all[4].mask = [](Index, Index, Index q, Index kv) { return (q + kv) % 3 != 0; };
  all[5].score_mod = mods::soft_cap(2);
  all[6].score_mod = [bias = Capture("bias", bias)](Score s, Index, Index h, Index q, Index kv) {
    return s * 0.5 + bias(h, q, kv);
  };
  all[6].mask = mods::causal();
  all[7].score_mod = [](Score s, Index, Index, Index q, Index kv) {
    return where(q > kv, s * s, sin(s));
  };
  return all;
}

TEST(Backward, LikeTheReferenceOnRandomProblems) {
  for (int round = 0; round < test::fuzz_count(60); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    const std::int64_t key_heads = random_int(random, 1, 2);
    const std::int64_t heads = key_heads * random_int(random, 1, 3);
    const std::int64_t batch = random_int(random, 1, 3);
    const std::int64_t key_batch = random_int(random, 0, 2) == 0 ? 1 : batch;
    const std::int64_t queries = random_int(random, 1, 130);
    const std::int64_t keys = random_int(random, 1, 170);
    const std::int64_t dim = random_int(random, 1, 40);
    const DType dtype = std::array{DType::f32, DType::f32, DType::bf16, DType::f16,
                                   DType::f64}[static_cast<std::size_t>(random_int(random, 0, 4))];
    const Problem p = random_problem(seed, dtype, {batch, heads, queries, dim},
                                     {key_batch, key_heads, keys, dim}, random_int(random, 1, 40));
    const std::vector<Options> mods = mods_for(heads, queries, keys);
    const Options& options = mods[seed % mods.size()];
    const double tolerance = dtype == DType::f64   ? 1e-12
                             : dtype == DType::f32 ? 3e-5
                             : dtype == DType::f16 ? 1e-2
                                                   : 6e-2;
    expect_close(gradients(options, p, false), gradients(options, p, true), tolerance);
  }
}

// More keys than a chunk, so that parts of dQ are handed over.
TEST(Backward, OverSeveralChunks) {
  Options causal;
  causal.mask = mods::causal();
  const Problem p = random_problem(3, DType::f32, {1, 2, 1500, 12}, {1, 1, 2500, 12}, 9);
  for (const Options& options : {Options{}, causal})
    expect_close(gradients(options, p, false), gradients(options, p, true), 3e-5);
}

TEST(Backward, TheSameBitsForAnyNumberOfThreads) {
  Options options;
  options.mask = mods::causal();
  const Problem p = random_problem(4, DType::f32, {2, 2, 3000, 16}, {2, 1, 3000, 16}, 16);
  const Backward one = gradients(options, p, false, tbb_executor(1));
  for (const int threads : {2, 3, 7})
    EXPECT_TRUE(same(one, gradients(options, p, false, tbb_executor(threads))));
  EXPECT_TRUE(same(one, gradients(options, p, false, serial_executor())));
}

TEST(Backward, ASequenceAloneAndInABatch) {
  const Problem both = random_problem(5, DType::f32, {2, 2, 70, 8}, {2, 2, 90, 8}, 8);
  const auto second = [](const Tensor& t) {
    Dims shape = t.shape();
    const std::int64_t half = t.count() / 2;
    shape[0] = 1;
    Tensor part(t.dtype(), shape);
    std::copy_n(t.data<float>().data() + half, half, part.data<float>().data());
    return part;
  };
  const Problem alone{second(both.q), second(both.k), second(both.v), second(both.dout),
                      second(both.dlse)};
  Options options;
  options.mask = mods::window(20);
  const Backward in_batch = gradients(options, both, false);
  const Backward by_itself = gradients(options, alone, false);
  EXPECT_TRUE(test::same_bits(second(in_batch.dq), by_itself.dq));
  EXPECT_TRUE(test::same_bits(second(in_batch.dk), by_itself.dk));
  EXPECT_TRUE(test::same_bits(second(in_batch.dv), by_itself.dv));
}

TEST(Backward, HiddenKeysThatHoldNanTouchNothing) {
  Problem p = random_problem(6, DType::f32, {1, 1, 40, 8}, {1, 1, 40, 8}, 8);
  for (std::int64_t d = 0; d < 8; ++d) {
    p.k.at<float>({0, 0, 39, d}) = std::nanf("");
    p.v.at<float>({0, 0, 39, d}) = INFINITY;
  }
  Options options;
  options.mask = [](Index, Index, Index q, Index kv) { return kv < 39 && q >= kv; };
  const Backward seen = gradients(options, p, false);
  for (const Tensor* t : {&seen.dq, &seen.dk, &seen.dv})
    for (const float x : t->data<float>()) ASSERT_TRUE(std::isfinite(x));
}

TEST(Backward, WhatComesInForALseOfNothingIsNotLookedAt) {
  Problem p = random_problem(8, DType::f32, {1, 1, 40, 8}, {1, 1, 40, 8}, 8);
  Options options;
  options.mask = [](Index, Index, Index q, Index kv) { return q > 9 && q >= kv; };
  const Backward expected = gradients(options, p, false);
  for (std::int64_t i = 0; i < 10; ++i) p.dlse.at<float>({0, 0, i}) = std::nanf("");
  EXPECT_TRUE(same(gradients(options, p, false), expected));
}

TEST(Backward, TwiceOnOneForwardAndBesideOtherCalls) {
  Options options;
  options.mask = mods::causal();
  const Problem p = random_problem(7, DType::f32, {1, 4, 200, 16}, {1, 2, 200, 16}, 16);
  const Attention attention = compile(options);
  const Forward y = attention.forward({p.q, p.k, p.v}, {.lse = true});
  const Backward first = attention.backward({p.q, p.k, p.v}, {y.out, y.lse}, p.dout);
  const auto executor = tbb_executor(4);
  std::atomic<int> equal{0};
  executor->run(12, [&](std::int64_t) {
    const Forward again = attention.forward({p.q, p.k, p.v}, {.lse = true});
    equal +=
        same(first, attention.backward({p.q, p.k, p.v}, {again.out, again.lse}, p.dout)) ? 1 : 0;
  });
  EXPECT_EQ(equal, 12);
}

}  // namespace
}  // namespace treadle
