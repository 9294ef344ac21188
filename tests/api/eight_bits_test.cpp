// Keys and values of 8 bits: results have the bits of a call with the same numbers in f32, in the
// reference and on every target that runs here, for many queries and for few.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>

#include "expect_error.h"
#include "plain_attention.h"
#include "plan/target.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

constexpr std::array eight_bit_types{DType::e4m3, DType::e5m2, DType::i8};

// Integers are spread over more than a few values.
Tensor random_keys(std::uint64_t seed, DType type, const Dims& shape) {
  Tensor numbers = test::random_tensor(seed, DType::f64, shape);
  if (type == DType::i8) {
    for (double& x : numbers.data<double>()) x *= 20;
  }
  return base::convert(numbers, type);
}

// Where both are NaN, its payload and sign are nobody's promise.
void expect_same(const Tensor& a, const Tensor& b, const char* what) {
  ASSERT_EQ(a.dtype(), b.dtype());
  ASSERT_EQ(a.shape(), b.shape());
  const Tensor x = base::convert(a, DType::f64), y = base::convert(b, DType::f64);
  for (std::size_t i = 0; i < x.data<double>().size(); ++i) {
    const double got = x.data<double>()[i], want = y.data<double>()[i];
    if (std::isnan(got) && std::isnan(want)) continue;
    ASSERT_EQ(std::bit_cast<std::uint64_t>(got), std::bit_cast<std::uint64_t>(want))
        << what << ", element " << i << ": " << got << " and " << want;
  }
}

void expect_as_of_f32(const Options& options, const Inputs& inputs, Call call = {}) {
  const auto widened = [](const ConstView& view) {
    return base::convert(view, size_of(view.dtype()) == 1 ? DType::f32 : view.dtype());
  };
  const Tensor k = widened(inputs.k), v = widened(inputs.v);
  const Attention attention = compile(options);
  call.lse = call.max = true;
  const Forward got = attention.forward(inputs, call);
  const Forward want = attention.forward({inputs.q, k, v}, call);
  expect_same(got.out, want.out, "out");
  expect_same(got.lse, want.lse, "lse");
  expect_same(got.max, want.max, "max");
}

struct TypesOfACall {
  DType q, k, v;
};

std::string text_of(const TypesOfACall& types) {
  return std::string(name_of(types.q)) + ", " + std::string(name_of(types.k)) + ", " +
         std::string(name_of(types.v));
}

// Every type of queries and of keys, in mixtures.
std::vector<TypesOfACall> mixtures() {
  std::vector<TypesOfACall> all;
  for (const DType type : eight_bit_types) all.push_back({DType::f32, type, type});
  all.push_back({DType::f32, DType::e4m3, DType::i8});
  all.push_back({DType::bf16, DType::i8, DType::e5m2});
  all.push_back({DType::f16, DType::e5m2, DType::f16});
  all.push_back({DType::f64, DType::f32, DType::e4m3});
  all.push_back({DType::f64, DType::e5m2, DType::i8});
  all.push_back({DType::f32, DType::e4m3, DType::f64});
  return all;
}

Options small_scores(const std::string& target = "") {
  Options options;
  options.scale = 0.03;
  options.target = target;
  options.mask = parse("q + 40 >= kv");  // in one piece, which decode takes
  options.score_mod = parse("score + 0.01 * float(q - kv)");
  return options;
}

TEST(EightBits, HaveTheBitsOfThirtyTwoOnEveryTarget) {
  for (const std::string& target : plan::runnable_targets()) {
    for (const TypesOfACall& types : mixtures()) {
      SCOPED_TRACE(target + ": " + text_of(types));
      const Tensor k = random_keys(2, types.k, {2, 2, 90, 37});
      const Tensor v = random_keys(3, types.v, {2, 2, 90, 21});
      for (const std::int64_t queries : {1, 3, 50}) {
        const Tensor q = test::random_tensor(1, types.q, {2, 4, queries, 37});
        ASSERT_NO_FATAL_FAILURE(expect_as_of_f32(small_scores(target), {q, k, v}));
      }
    }
  }
}

TEST(EightBits, HaveTheBitsOfThirtyTwoInTheReference) {
  Options options = small_scores();
  options.backend = Backend::reference;
  for (const TypesOfACall& types : mixtures()) {
    SCOPED_TRACE(text_of(types));
    const Tensor q = test::random_tensor(1, types.q, {2, 4, 5, 16});
    const Tensor k = random_keys(2, types.k, {2, 2, 30, 16});
    const Tensor v = random_keys(3, types.v, {2, 2, 30, 8});
    ASSERT_NO_FATAL_FAILURE(expect_as_of_f32(options, {q, k, v}));
  }
}

TEST(EightBits, AgreeWithATextbook) {
  for (const Backend backend : {Backend::cpu, Backend::reference}) {
    for (const DType type : eight_bit_types) {
      SCOPED_TRACE(std::string(name_of(type)));
      Options options;
      options.scale = 0.03;
      options.backend = backend;
      const Tensor k = random_keys(2, type, {1, 2, 60, 16});
      const Tensor v = random_keys(3, type, {1, 2, 60, 24});
      for (const std::int64_t queries : {1, 40}) {
        const Tensor q = test::random_tensor(1, DType::f32, {1, 4, queries, 16});
        test::Plain plain(q, k, v);
        plain.scale = 0.03;
        const Forward y = attention({q, k, v}, options, {.lse = true});
        const test::Plain::Result want = plain.run();
        test::expect_near(y.out, want.out, type == DType::i8 ? 1e-4 : 1e-5);
        test::expect_near(y.lse, want.lse, 1e-5);
      }
    }
  }
}

// Each code is an element of the only value, and NaN where it is NaN. Those that are finite are keys
// and values of their own, too: with a NaN, few queries are done as many are.
TEST(EightBits, EveryCode) {
  for (const std::string& target : plan::runnable_targets()) {
    for (const DType type : eight_bit_types) {
      SCOPED_TRACE(target + ": " + std::string(name_of(type)));
      std::array<std::uint8_t, 256> values{}, keys{};
      for (std::size_t i = 0; i < 256; ++i) {
        values[i] = static_cast<std::uint8_t>(i);
        const double number = base::load_double(values.data(), type, static_cast<std::int64_t>(i));
        keys[i] = std::isfinite(number) ? values[i] : std::uint8_t{0};
      }
      const ConstView wide(static_cast<const void*>(values.data()), type, {1, 1, 1, 256});
      const ConstView finite(static_cast<const void*>(keys.data()), type, {1, 1, 1, 256});
      const ConstView many(static_cast<const void*>(keys.data()), type, {1, 1, 256, 1});
      Options options;
      options.target = target;
      options.scale = 0x1p-9;
      for (const std::int64_t queries : {1, 40}) {
        const Tensor q = test::random_tensor(1, DType::f32, {1, 1, queries, 1});
        const Tensor key(DType::f32, {1, 1, 1, 1});
        const Forward y = compile(options).forward({q, key, wide});
        for (std::int64_t d = 0; d < 256; ++d) {
          const double want = base::load_double(values.data(), type, d);
          const float got = y.out.at<float>({0, 0, queries - 1, d});
          ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : got == want) << d << ": " << got;
        }
        ASSERT_NO_FATAL_FAILURE(expect_as_of_f32(options, {q, many, many}));
        ASSERT_NO_FATAL_FAILURE(expect_as_of_f32(options, {q, key, finite}));
        const Tensor long_q = test::random_tensor(1, DType::f32, {1, 1, queries, 256});
        ASSERT_NO_FATAL_FAILURE(expect_as_of_f32(options, {long_q, finite, finite}));
      }
    }
  }
}

// A NaN and an infinity are seen by those who see their key, and by nobody else.
TEST(EightBits, NansAndInfinities) {
  Tensor v = random_keys(3, DType::e5m2, {1, 1, 50, 16});
  v.at<e5m2>({0, 0, 44, 3}) = e5m2(std::numeric_limits<float>::infinity());
  Tensor k = random_keys(2, DType::e4m3, {1, 1, 50, 16});
  k.at<e4m3>({0, 0, 46, 0}) = e4m3(std::numeric_limits<float>::quiet_NaN());
  Options options;
  for (const char* mask : {"q + 10 >= kv", "kv != 44 && kv != 46"}) {
    options.mask = parse(mask);
    for (const std::int64_t queries : {1, 40}) {
      const Tensor q = test::random_tensor(1, DType::f32, {1, 1, queries, 16});
      ASSERT_NO_FATAL_FAILURE(expect_as_of_f32(options, {q, k, v}));
    }
  }
  const Tensor q = test::random_tensor(1, DType::f32, {1, 1, 40, 16});
  options.mask = parse("q + 10 >= kv");
  const Tensor out = compile(options).forward({q, k, v}).out;
  EXPECT_TRUE(std::isfinite(out.at<float>({0, 0, 33, 3})));
  EXPECT_EQ(out.at<float>({0, 0, 35, 3}), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isfinite(out.at<float>({0, 0, 35, 4})));
  EXPECT_TRUE(std::isnan(out.at<float>({0, 0, 36, 4})));
}

// Rows in another order, elements that are not neighbours, keys that a batch shares, parts.
TEST(EightBits, AnyStridesAndPositions) {
  for (const DType type : eight_bit_types) {
    SCOPED_TRACE(std::string(name_of(type)));
    const Tensor memory = random_keys(2, type, {2, 60, 2, 16});
    const ConstView turned(ConstView(memory).data(), type, {2, 2, 60, 16}, {1920, 16, 32, 1});
    const ConstView apart(ConstView(memory).data(), type, {1, 2, 60, 8}, {0, 16, 32, 2});
    for (const std::int64_t queries : {1, 40}) {
      const Tensor q = test::random_tensor(1, DType::f32, {2, 2, queries, 16});
      const Tensor narrow = test::random_tensor(1, DType::f32, {2, 2, queries, 8});
      ASSERT_NO_FATAL_FAILURE(expect_as_of_f32(small_scores(), {q, turned, turned}));
      ASSERT_NO_FATAL_FAILURE(expect_as_of_f32(small_scores(), {narrow, apart, apart}));
      const Call moved{.q_offsets = {3, 17}, .kv_offsets = {-2, 5}};
      ASSERT_NO_FATAL_FAILURE(expect_as_of_f32(small_scores(), {q, turned, turned}, moved));
    }
  }
}

TEST(EightBits, BackwardRefusesThem) {
  const Tensor x = test::random_tensor(1, DType::f32, {1, 1, 5, 8});
  const Tensor narrow = base::convert(x, DType::e4m3), integers = base::convert(x, DType::i8);
  for (const Backend backend : {Backend::cpu, Backend::reference}) {
    Options options;
    options.backend = backend;
    const Attention attention = compile(options);
    const Forward y = attention.forward({x, narrow, integers}, {.lse = true});
    EXPECT_ERROR(attention.backward({x, narrow, x}, {y.out, y.lse}, y.out),
                 "backward: k holds e4m3; gradients need f64, f32, bf16 or f16");
    EXPECT_ERROR(attention.backward({x, x, integers}, {y.out, y.lse}, y.out),
                 "backward: v holds i8; gradients need f64, f32, bf16 or f16");
    Tensor dq(DType::f32, x.shape()), dk(DType::e4m3, x.shape()), dv(DType::f32, x.shape());
    EXPECT_ERROR(attention.backward_into({dq, dk, dv, {}, std::nullopt}, {x, narrow, x},
                                         {y.out, y.lse}, y.out),
                 "backward: k holds e4m3; gradients need f64, f32, bf16 or f16");
    const TensorSpec wide(DType::f32, x.shape()), eight(DType::e5m2, x.shape());
    attention.prepare({{wide, eight, eight}});
    EXPECT_ERROR(attention.prepare({{wide, wide, eight, true}}),
                 "prepare: v holds e5m2; gradients need f64, f32, bf16 or f16");
  }
}

TEST(EightBits, ShapesOfWhatBackwardWouldGive) {
  const Attention attention = compile({});
  const Dims shape{1, 2, 5, 8};
  for (const auto& [q, compute] :
       {std::tuple(DType::bf16, DType::f32), std::tuple(DType::f64, DType::f64)}) {
    const auto shapes = attention.shapes({q, shape}, {DType::e4m3, shape}, {DType::i8, shape});
    EXPECT_EQ(shapes.out.dtype, q);
    EXPECT_EQ(shapes.lse.dtype, compute);
    EXPECT_EQ(shapes.dq.dtype, q);
    EXPECT_EQ(shapes.dk.dtype, compute);
    EXPECT_EQ(shapes.dv.dtype, compute);
    EXPECT_EQ(shapes.dv.shape, shape);
  }
  const auto half =
      attention.shapes({DType::f32, shape}, {DType::bf16, shape}, {DType::e5m2, shape});
  EXPECT_EQ(half.dk.dtype, DType::bf16);
}

}  // namespace
}  // namespace treadle
