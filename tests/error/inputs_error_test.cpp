// What forward and shapes say about q, k and v.
#include <gtest/gtest.h>

#include "expect_error.h"
#include "treadle/attention.h"

namespace treadle {
namespace {

using test::expect_error;

// forward of tensors of these shapes and types says this, and shapes() says the same beforehand.
void expect_refused(const TensorSpec& q, const TensorSpec& k, const TensorSpec& v,
                    const std::string& message) {
  const Attention plain = compile({});
  const Tensor tq(q.dtype, q.shape);
  const Tensor tk(k.dtype, k.shape);
  const Tensor tv(v.dtype, v.shape);
  expect_error([&] { (void)plain.forward({tq, tk, tv}); }, "forward: " + message);
  expect_error([&] { (void)plain.shapes(q, k, v); }, "shapes: " + message);
  const Tensor none;
  expect_error([&] { (void)plain.backward({tq, tk, tv}, {none, none}, none); },
               "backward: " + message);
}

constexpr DType f32 = DType::f32;
const TensorSpec good(f32, {2, 4, 5, 8});

TEST(InputErrors, RankOfQueries) {
  expect_refused({f32, {4, 5, 8}}, good, good,
                 "q has shape [4, 5, 8]; it must be [batch, heads, length, dim]");
}

TEST(InputErrors, RankOfKeys) {
  expect_refused(good, {f32, {1, 2, 4, 5, 8}}, good,
                 "k has shape [1, 2, 4, 5, 8]; it must be [batch, heads, length, dim]");
}

TEST(InputErrors, RankOfValues) {
  expect_refused(good, good, {f32, {}}, "v has shape []; it must be [batch, heads, length, dim]");
}

TEST(InputErrors, IntegerQueries) {
  expect_refused({DType::i8, {2, 4, 5, 8}}, good, good,
                 "q holds i8; it must hold f64, f32, bf16 or f16");
}

TEST(InputErrors, QueriesOfEightBits) {
  expect_refused({DType::e4m3, {2, 4, 5, 8}}, good, good,
                 "q holds e4m3; it must hold f64, f32, bf16 or f16");
  expect_refused({DType::e5m2, {2, 4, 5, 8}}, good, good,
                 "q holds e5m2; it must hold f64, f32, bf16 or f16");
}

TEST(InputErrors, KeysOfSixteenBitIntegers) {
  expect_refused(good, {DType::i16, {2, 4, 5, 8}}, good,
                 "k holds i16; it must hold f64, f32, bf16, f16, e4m3, e5m2 or i8");
}

TEST(InputErrors, BoolValues) {
  expect_refused(good, good, {DType::boolean, {2, 4, 5, 8}},
                 "v holds bool; it must hold f64, f32, bf16, f16, e4m3, e5m2 or i8");
}

TEST(InputErrors, NoDim) {
  expect_refused({f32, {2, 4, 5, 0}}, {f32, {2, 4, 5, 0}}, good,
                 "q has shape [2, 4, 5, 0]; its last length, dim, must be at least 1");
}

TEST(InputErrors, NoValueDim) {
  expect_refused(good, good, {f32, {2, 4, 5, 0}},
                 "v has shape [2, 4, 5, 0]; its last length, dim, must be at least 1");
}

TEST(InputErrors, LengthBeyond32Bits) {
  const std::int64_t length = std::int64_t{1} << 31;
  float one = 0;
  const ConstView q(&one, {1, 1, length, 1}, {0, 0, 0, 0});
  const ConstView k(&one, {1, 1, 1, 1});
  expect_error([&] { (void)attention({q, k, k}); },
               "forward: q has shape [1, 1, 2147483648, 1]; lengths are between 0 and 2147483647");
}

TEST(InputErrors, NegativeLength) {
  TensorSpec spec = good;
  spec.shape[2] = -5;
  expect_error([&] { (void)compile({}).shapes(spec, good, good); },
               "shapes: q has shape [2, 4, -5, 8]; lengths are between 0 and 2147483647");
}

TEST(InputErrors, Dims) {
  expect_refused(good, {f32, {2, 4, 5, 6}}, good, "queries have dim 8, keys 6; they must be equal");
}

TEST(InputErrors, BatchOfValues) {
  expect_refused(good, good, {f32, {1, 4, 5, 8}},
                 "keys have batch 2, values 1; they must be equal");
}

TEST(InputErrors, HeadsOfValues) {
  expect_refused(good, good, {f32, {2, 2, 5, 8}},
                 "keys have 4 heads, values 2; they must be equal");
}

TEST(InputErrors, KeysAndValues) {
  expect_refused(good, good, {f32, {2, 4, 6, 8}},
                 "there are 5 keys and 6 values; they must be equal");
}

TEST(InputErrors, BatchOfKeys) {
  expect_refused({f32, {4, 4, 5, 8}}, good, good,
                 "queries have batch 4, keys 2; they must be equal, or 1 for the keys");
}

TEST(InputErrors, OneBatchOfQueriesForManyOfKeys) {
  expect_refused({f32, {1, 4, 5, 8}}, good, good,
                 "queries have batch 1, keys 2; they must be equal, or 1 for the keys");
}

TEST(InputErrors, HeadsAreNoMultiple) {
  expect_refused({f32, {2, 12, 5, 8}}, {f32, {2, 8, 5, 8}}, {f32, {2, 8, 5, 8}},
                 "queries have 12 heads, keys 8; 12 is not a multiple of 8");
}

TEST(InputErrors, MoreHeadsOfKeysThanOfQueries) {
  expect_refused({f32, {2, 2, 5, 8}}, good, good,
                 "queries have 2 heads, keys 4; 2 is not a multiple of 4");
}

TEST(InputErrors, NoHeadsOfKeys) {
  expect_refused(good, {f32, {2, 0, 5, 8}}, {f32, {2, 0, 5, 8}},
                 "queries have 4 heads, keys 0; 4 is not a multiple of 0");
}

}  // namespace
}  // namespace treadle
