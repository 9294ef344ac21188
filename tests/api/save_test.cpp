// What a forward pass leaves for its backward: out and lse, or nothing.
#include <gtest/gtest.h>

#include "expect_error.h"
#include "trained.h"

namespace treadle {
namespace {

using test::same_gradients;
using test::Trained;

TEST(Save, NothingGivesTheSameBits) {
  for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    Trained t(type);
    const Backward expected = t.backward();
    t.options.save = Save::nothing;
    EXPECT_TRUE(same_gradients(t.attention().backward(t.inputs(), {}, t.dout, t.dlse), expected))
        << name_of(type);
  }
}

TEST(Save, NothingLooksAtNothing) {
  Trained t(DType::f32);
  const Backward expected = t.backward();
  t.options.save = Save::nothing;
  const Tensor wrong(DType::f64, {3});
  EXPECT_TRUE(
      same_gradients(t.attention().backward(t.inputs(), {wrong, wrong}, t.dout, t.dlse), expected));
}

TEST(Save, NothingWithTheReference) {
  Trained t(DType::f32);
  t.options.backend = Backend::reference;
  const Backward expected = t.backward();
  t.options.save = Save::nothing;
  EXPECT_TRUE(same_gradients(t.attention().backward(t.inputs(), {}, t.dout, t.dlse), expected));
}

TEST(Save, NothingOfOtherExecutorsAndLayouts) {
  Trained t(DType::f32);
  const Backward expected = t.backward();
  t.options.save = Save::nothing;
  const Attention attend = t.attention();
  const Layout layout = attend.layout(t.inputs());
  for (const int threads : {1, 3}) {
    const Call call{.captures = {}, .executor = tbb_executor(threads), .layout = layout};
    EXPECT_TRUE(same_gradients(attend.backward(t.inputs(), {}, t.dout, t.dlse, call), expected));
  }
}

// A NaN goes the way of the reference, which needs out and lse as well.
TEST(Save, NothingWithNan) {
  Trained t(DType::f32);
  t.q.at<float>({1, 2, 50, 3}) = std::nanf("");
  const Backward expected = t.backward();
  t.options.save = Save::nothing;
  const Backward seen = t.attention().backward(t.inputs(), {}, t.dout, t.dlse);
  EXPECT_TRUE(std::isnan(seen.dq.at<float>({1, 2, 50, 0})));
  EXPECT_TRUE(same_gradients(seen, expected));
}

TEST(Save, NothingReportsPoisonAsBackward) {
  Trained t(DType::f32);
  t.options.save = Save::nothing;
  const Tensor shorter(DType::f32, {4, 109});
  const Call call{.captures = {{"bias", shorter}}, .executor = serial_executor()};
  EXPECT_ERROR(t.attention().backward(t.inputs(), {}, t.dout, t.dlse, call),
               "score mod: bias: index 109 along dimension 1 is outside its length 109, at (b 0, "
               "h 0, q 70, kv 109)");
}

TEST(Save, LseNeedsThem) {
  Trained t(DType::f32);
  t.backward();
  const Attention attend = t.attention();
  EXPECT_ERROR(attend.backward(t.inputs(), {}, t.dout),
               "backward: out has shape [0]; it must be [2, 4, 130, 6]");
  EXPECT_ERROR(attend.backward(t.inputs(), {t.out, {}}, t.dout),
               "backward: saved.lse is empty; forward returns it when Call::lse is set");
}

TEST(Save, Bytes) {
  const Trained t(DType::f32);
  const Attention attend = t.attention();
  const auto shapes = [&](DType type) {
    return attend.shapes({type, {2, 4, 130, 8}}, {type, {2, 2, 110, 8}}, {type, {2, 2, 110, 6}});
  };
  constexpr std::int64_t rows = 2 * 4 * 130;
  EXPECT_EQ(shapes(DType::f32).saved_bytes(Save::lse), rows * (6 * 4 + 4));
  EXPECT_EQ(shapes(DType::bf16).saved_bytes(Save::lse), rows * (6 * 2 + 4));
  EXPECT_EQ(shapes(DType::f64).saved_bytes(Save::lse), rows * (6 * 8 + 8));
  EXPECT_EQ(shapes(DType::f64).saved_bytes(Save::nothing), 0);
}

}  // namespace
}  // namespace treadle
