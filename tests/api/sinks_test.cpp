// Attention sinks: a logit per head that takes part in the softmax and has no value.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "expect_error.h"
#include "plain_attention.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

constexpr double no_bound = std::numeric_limits<double>::infinity();

Tensor sinks_tensor(const std::vector<double>& values, DType type = DType::f32) {
  Tensor sinks(type, {static_cast<std::int64_t>(values.size())});
  for (std::size_t h = 0; h < values.size(); ++h)
    base::store_double(sinks.view().data(), type, static_cast<std::int64_t>(h), values[h]);
  return sinks;
}

struct SinkCase {
  std::string mask = "true";
  std::int64_t queries = 50, keys = 70;
  std::vector<double> sinks{0.5, -2, 3, 1};
  DType type = DType::f32;
};

test::Plain plain_of(const SinkCase& c, const Inputs& inputs) {
  test::Plain plain(inputs.q, inputs.k, inputs.v);
  plain.sinks = c.sinks;
  if (c.mask == "kv > q + 5") plain.mask = [](auto, auto, auto q, auto kv) { return kv > q + 5; };
  if (c.mask == "q >= kv") plain.mask = [](auto, auto, auto q, auto kv) { return q >= kv; };
  if (c.mask == "q >= kv && (q - kv < 8 || (q - kv) % 16 == 0)") {
    plain.mask = [](auto, auto, auto q, auto kv) {
      return q >= kv && (q - kv < 8 || (q - kv) % 16 == 0);
    };
  }
  return plain;
}

void expect_like_the_definition(const SinkCase& c) {
  SCOPED_TRACE(testing::Message() << c.mask << ", " << c.queries << " queries, " << c.keys
                                  << " keys, " << name_of(c.type));
  const auto heads = static_cast<std::int64_t>(c.sinks.size());
  const Tensor q = test::random_tensor(1, c.type, {2, heads, c.queries, 24});
  const Tensor k = test::random_tensor(2, c.type, {2, heads / 2, c.keys, 24});
  const Tensor v = test::random_tensor(3, c.type, {2, heads / 2, c.keys, 20});
  const Tensor sinks = sinks_tensor(c.sinks, DType::f64);
  const test::Plain::Result expected = plain_of(c, {q, k, v}).run();
  const double tolerance = c.type == DType::bf16 ? 1e-2 : 1e-5;
  for (const Backend backend : {Backend::cpu, Backend::reference}) {
    Options options;
    options.mask = parse(c.mask);
    options.backend = backend;
    Call call{.lse = true, .max = true};
    call.sinks = sinks;
    const Forward got = compile(options).forward({q, k, v}, call);
    test::expect_near(got.out, expected.out, tolerance);
    test::expect_near(got.lse, expected.lse, 1e-5);
    test::expect_near(got.max, expected.max, 1e-5);
  }
}

TEST(Sinks, LikeTheDefinition) {
  for (const char* mask :
       {"true", "q >= kv", "kv > q + 5", "q >= kv && (q - kv < 8 || (q - kv) % 16 == 0)"}) {
    for (const DType type : {DType::f32, DType::f64, DType::bf16}) {
      for (const std::int64_t queries : {1, 3, 50})
        expect_like_the_definition({.mask = mask, .queries = queries, .type = type});
    }
  }
  expect_like_the_definition({.queries = 60, .keys = 3000});
  expect_like_the_definition({.queries = 2, .keys = 3000});
  expect_like_the_definition({.queries = 2, .keys = 0});
}

// Far above all scores, far below, none at all, and no bound.
TEST(Sinks, AnySize) {
  for (const std::int64_t queries : {1, 40})
    expect_like_the_definition({.queries = queries, .sinks = {500, -500, -no_bound, 80}});
  const Tensor q = test::random_tensor(1, DType::f32, {1, 1, 40, 8});
  const Tensor infinite = sinks_tensor({no_bound}), unknown = sinks_tensor({NAN});
  for (const Backend backend : {Backend::cpu, Backend::reference}) {
    Options options;
    options.backend = backend;
    Call call{.lse = true};
    call.sinks = infinite;
    const Forward all = compile(options).forward({q, q, q}, call);
    EXPECT_EQ(all.out.at<float>({0, 0, 3, 2}), 0);
    EXPECT_EQ(all.lse.at<float>({0, 0, 3}), no_bound);
    call.sinks = unknown;
    const Forward nothing = compile(options).forward({q, q, q}, call);
    EXPECT_TRUE(std::isnan(nothing.out.at<float>({0, 0, 3, 2})));
    EXPECT_TRUE(std::isnan(nothing.lse.at<float>({0, 0, 3})));
  }
}

TEST(Sinks, OfMinusInfinityAreNone) {
  const Tensor q = test::random_tensor(1, DType::f32, {1, 2, 40, 8});
  const Tensor sinks = sinks_tensor({-no_bound, -no_bound});
  Options options;
  options.mask = parse("kv > q");
  Call call{.lse = true}, with = call;
  with.sinks = sinks;
  const Attention attention = compile(options);
  const Forward without = attention.forward({q, q, q}, call);
  const Forward same = attention.forward({q, q, q}, with);
  EXPECT_TRUE(test::same_bits(without.out, same.out));
  EXPECT_TRUE(test::same_bits(without.lse, same.lse));
  const Backward g = attention.backward({q, q, q}, {same.out, same.lse}, q, std::nullopt, with);
  EXPECT_EQ(g.dsinks.at<float>({0}), 0);
}

// A step of decoding, and the same row among many.
TEST(Sinks, KeepTheBitsOfDecode) {
  const Tensor q = test::random_tensor(1, DType::f32, {1, 2, 40, 16});
  const Tensor k = test::random_tensor(2, DType::f32, {1, 1, 2000, 16});
  const Tensor sinks = sinks_tensor({0.3, 4});
  Call call{.lse = true};
  call.sinks = sinks;
  const Attention attention = compile({});
  const Forward many = attention.forward({q, k, k}, call);
  const ConstView first(static_cast<const float*>(ConstView(q).data()), {1, 2, 1, 16},
                        {2 * 40 * 16, 40 * 16, 16, 1});
  const Forward one = attention.forward({first, k, k}, call);
  for (const std::int64_t h : {0, 1}) {
    EXPECT_EQ(one.lse.at<float>({0, h, 0}), many.lse.at<float>({0, h, 0}));
    for (std::int64_t d = 0; d < 16; ++d)
      EXPECT_EQ(one.out.at<float>({0, h, 0, d}), many.out.at<float>({0, h, 0, d}));
  }
}

TEST(Sinks, GradientsAreThoseOfTheDefinition) {
  for (const char* mask : {"true", "kv > q + 5", "q >= kv && (q - kv < 8 || (q - kv) % 16 == 0)"}) {
    SCOPED_TRACE(mask);
    const SinkCase c{
        .mask = mask, .queries = 20, .keys = 24, .sinks = {0.5, -2}, .type = DType::f64};
    const Tensor q = test::random_tensor(1, DType::f64, {2, 2, c.queries, 5});
    const Tensor k = test::random_tensor(2, DType::f64, {2, 1, c.keys, 5});
    const Tensor v = test::random_tensor(3, DType::f64, {2, 1, c.keys, 4});
    const Tensor dout = test::random_tensor(4, DType::f64, {2, 2, c.queries, 4});
    const Tensor dlse = test::random_tensor(5, DType::f64, {2, 2, c.queries});
    const Tensor sinks = sinks_tensor(c.sinks, DType::f64);
    test::Plain plain = plain_of(c, {q, k, v});
    const test::Array by_out(dout), by_lse(dlse);
    const auto gradient = [&](const Tensor& of, std::vector<double>& by) {
      return plain.gradient(of.shape(), by, by_out, by_lse);
    };
    const test::Array dq = gradient(q, plain.q.data), dk = gradient(k, plain.k.data);
    const test::Array dv = gradient(v, plain.v.data), dsinks = gradient(sinks, plain.sinks);
    for (const Backend backend : {Backend::cpu, Backend::reference}) {
      for (const Save save : {Save::lse, Save::nothing}) {
        Options options;
        options.mask = parse(mask);
        options.backend = backend;
        options.save = save;
        const Attention attention = compile(options);
        Call call{.lse = true};
        call.sinks = sinks;
        const Forward y = attention.forward({q, k, v}, call);
        const Saved saved = save == Save::lse ? Saved{y.out, y.lse} : Saved{};
        const Backward g = attention.backward({q, k, v}, saved, dout, dlse, call);
        test::expect_near(g.dq, dq, 1e-7);
        test::expect_near(g.dk, dk, 1e-7);
        test::expect_near(g.dv, dv, 1e-7);
        test::expect_near(g.dsinks, dsinks, 1e-7);
      }
    }
  }
}

TEST(Sinks, GradientsHaveTheSameBitsForAnyThreads) {
  const Tensor q = test::random_tensor(1, DType::f32, {3, 4, 300, 16});
  const Tensor sinks = sinks_tensor({0.5, -2, 3, 1});
  const auto gradient = [&](int threads) {
    Call call{.executor = tbb_executor(threads), .lse = true};
    call.sinks = sinks;
    const Attention attention = compile({});
    const Forward y = attention.forward({q, q, q}, call);
    return attention.backward({q, q, q}, {y.out, y.lse}, q, std::nullopt, call).dsinks;
  };
  EXPECT_TRUE(test::same_bits(gradient(1), gradient(4)));
}

TEST(Sinks, BadOnesAreRefused) {
  const Tensor q(DType::f32, {1, 4, 8, 16});
  const Tensor few(DType::f32, {3}), integers(DType::i32, {4}), fine(DType::f32, {4});
  Tensor dsinks(DType::f32, {4});
  const Attention attention = compile({});
  Call call{.lse = true};
  call.sinks = few;
  EXPECT_ERROR(attention.forward({q, q, q}, call), "forward: sinks has shape [3]; it must be [4]");
  call.sinks = integers;
  EXPECT_ERROR(attention.forward({q, q, q}, call),
               "forward: sinks are of type i32; they must be f64, f32, bf16 or f16");
  const Tensor eight_bits(DType::e5m2, {4});
  call.sinks = eight_bits;
  EXPECT_ERROR(attention.forward({q, q, q}, call),
               "forward: sinks are of type e5m2; they must be f64, f32, bf16 or f16");
  call.sinks = std::nullopt;
  const Forward y = attention.forward({q, q, q}, call);
  Tensor dq(DType::f32, q.shape()), dk(DType::f32, q.shape()), dv(DType::f32, q.shape());
  const BackwardViews views{dq, dk, dv, {}, dsinks.view()};
  test::expect_error(
      [&] { attention.backward_into(views, {q, q, q}, {y.out, y.lse}, q, std::nullopt, call); },
      "backward: a view for dsinks was passed, but no sinks");
}

}  // namespace
}  // namespace treadle
