// Gradients of captures of any type and any strides.
#include <gtest/gtest.h>

#include <cmath>

#include "trained.h"

namespace treadle {
namespace {

using test::Array;
using test::random_tensor;
using test::same_bits;
using test::Trained;

// Summed in the compute type and rounded once.
TEST(CaptureGradients, OfAnyType) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32, DType::f64}) {
    Trained t(DType::f32, type);
    const Backward seen = t.backward();
    Trained exact(DType::f64, DType::f64);
    for (auto [to, from] : {std::pair{&exact.q, &t.q},
                            {&exact.k, &t.k},
                            {&exact.v, &t.v},
                            {&exact.dout, &t.dout},
                            {&exact.dlse, &t.dlse},
                            {&exact.bias, &t.bias}})
      *to = base::convert(*from, DType::f64);
    exact.add_bias(exact.bias);
    exact.options.backend = Backend::reference;
    const Backward expected = exact.backward();
    ASSERT_EQ(seen.of("bias").dtype(), type);
    ASSERT_EQ(seen.of("bias").shape(), t.bias.shape());
    const Array x{ConstView(seen.of("bias"))}, y{ConstView(expected.of("bias"))};
    // Half of the last place, and what sums lose in f32.
    const double place = type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : 0;
    for (std::size_t i = 0; i < x.data.size(); ++i)
      ASSERT_NEAR(x.data[i], y.data[i], place * std::abs(y.data[i]) + 1e-5) << name_of(type);
  }
}

// A view's gradient has its shape and is itself contiguous; where a view repeats elements, each
// repetition has its own gradient.
TEST(CaptureGradients, OfViewsOfAnyStrides) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const Tensor memory = random_tensor(8, type, {4 * 110 * 3});
    const auto* data = static_cast<const std::byte*>(ConstView(memory).data());
    const auto view = [&](std::int64_t first, const Dims& strides) {
      return ConstView(data + first * static_cast<std::int64_t>(size_of(type)), type, {4, 110},
                       strides);
    };
    for (const ConstView& bias : {view(0, {1, 4}), view(2, {330, 3}), view(110, {110, -1}),
                                  view(1319, {-330, -3}), view(20, {0, 1}), view(7, {0, 0})}) {
      Trained t(DType::f32, type);
      t.bias = test::contiguous(bias);
      t.add_bias(t.bias);
      const Backward expected = t.backward();
      t.add_bias(bias);
      EXPECT_TRUE(test::same_gradients(t.backward(), expected)) << to_string(bias.strides());
      EXPECT_EQ(expected.of("bias").shape(), (Dims{4, 110}));
    }
  }
}

// Many small amounts for one number: rounded once, not at each of them.
TEST(CaptureGradients, OfOneNumberOfSixteenBits) {
  for (const DType type : {DType::bf16, DType::f16}) {
    Trained t(DType::f32);
    const Tensor gain = base::convert(random_tensor(9, DType::f64, {}), type);
    const Tensor wide = base::convert(gain, DType::f32);
    const auto gradient = [&](const Tensor& of) {
      t.options.score_mod = [gain = Capture("gain", of)](Score s, Index, Index, Index, Index) {
        return s * gain();
      };
      t.options.gradients = {"gain"};
      return t.backward().of("gain").clone();
    };
    EXPECT_TRUE(same_bits(gradient(gain), base::convert(gradient(wide), type))) << name_of(type);
  }
}

}  // namespace
}  // namespace treadle
