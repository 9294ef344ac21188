// Probabilities that are none, in every call that takes them.
#include <gtest/gtest.h>

#include "expect_error.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

TEST(DropoutErrors, NoProbability) {
  const Tensor q(DType::f32, {1, 1, 4, 4}), row(DType::f32, {1, 1, 4});
  const Attention attention = compile({});
  const Call call{.dropout = {.probability = 1.25}};
  EXPECT_ERROR(attention.forward({q, q, q}, call),
               "forward: the probability of dropout is 1.25; it must be from 0 to 1");
  EXPECT_ERROR(attention.backward({q, q, q}, {q, row}, q, std::nullopt, call),
               "backward: the probability of dropout is 1.25; it must be from 0 to 1");
  const TensorSpec spec(DType::f32, {1, 1, 4, 4});
  EXPECT_ERROR(attention.prepare({{spec, spec, spec}}, call),
               "prepare: the probability of dropout is 1.25; it must be from 0 to 1");
}

TEST(DropoutErrors, NoProbabilityOfSequences) {
  const Tensor q(DType::f32, {4, 1, 4}), row(DType::f32, {4, 1});
  Tensor starts(DType::i32, {2});
  starts.at<std::int32_t>({1}) = 4;
  const Sequences sequences{q, starts, PackedKeys{q, q, starts}};
  const Attention attention = compile({});
  const Call call{.dropout = {.probability = -1}};
  EXPECT_ERROR(attention.forward(sequences, call),
               "forward: the probability of dropout is -1; it must be from 0 to 1");
  EXPECT_ERROR(attention.backward(sequences, {q, row}, q, std::nullopt, call),
               "backward: the probability of dropout is -1; it must be from 0 to 1");
}

}  // namespace
}  // namespace treadle
