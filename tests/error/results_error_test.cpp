// What forward and backward say about the memory they are given for results, and about what was
// saved.
#include <gtest/gtest.h>

#include "expect_error.h"
#include "treadle/attention.h"
#include "treadle/mods.h"

namespace treadle {
namespace {

using test::expect_error;

class ResultErrors : public testing::Test {
 protected:
  Tensor x{DType::f32, {1, 2, 3, 4}};
  Tensor rows{DType::f32, {1, 2, 3}};
  Tensor slopes{DType::f32, {2}};
  Options options;

  void expect_forward(const ForwardViews& results, const std::string& message) {
    expect_error([&] { compile(options).forward_into(results, {x, x, x}); }, message);
  }
  void expect_backward(const Saved& saved, const ConstView& dout, const std::string& message) {
    expect_error([&] { (void)compile(options).backward({x, x, x}, saved, dout); }, message);
  }
  void expect_backward_into(const BackwardViews& results, const std::string& message) {
    expect_error([&] { compile(options).backward_into(results, {x, x, x}, {x, rows}, x); },
                 message);
  }
  // A result tensor of the right shape and the wrong type.
  Tensor wide{DType::f64, {1, 2, 3, 4}};
  Tensor shorter{DType::f32, {1, 2, 2, 4}};
};

TEST_F(ResultErrors, TypeOfOut) {
  expect_forward({wide, {}, {}}, "forward: out holds f64; it must hold f32");
}

TEST_F(ResultErrors, ShapeOfOut) {
  expect_forward({shorter, {}, {}}, "forward: out has shape [1, 2, 2, 4]; it must be [1, 2, 3, 4]");
}

TEST_F(ResultErrors, OutOnTopOfItself) {
  const View repeated(x.view().data(), DType::f32, {1, 2, 3, 4}, {24, 0, 4, 1});
  expect_forward({repeated, {}, {}},
                 "forward: out has shape [1, 2, 3, 4] and strides [24, 0, 4, 1]; elements of a "
                 "result must not share memory");
}

TEST_F(ResultErrors, OverlappingRows) {
  const View close(x.view().data(), DType::f32, {1, 2, 3, 4}, {24, 12, 3, 1});
  expect_forward({close, {}, {}},
                 "forward: out has shape [1, 2, 3, 4] and strides [24, 12, 3, 1]; elements of a "
                 "result must not share memory");
}

TEST_F(ResultErrors, ShapeOfLse) {
  expect_forward({x, x, {}}, "forward: lse has shape [1, 2, 3, 4]; it must be [1, 2, 3]");
}

TEST_F(ResultErrors, TypeOfMax) {
  Tensor wide_rows(DType::f64, {1, 2, 3});
  expect_forward({x, {}, wide_rows}, "forward: max holds f64; it must hold f32");
}

TEST_F(ResultErrors, SavedOut) {
  expect_backward({wide, rows}, x, "backward: out holds f64; it must hold f32");
}

TEST_F(ResultErrors, SavedLseIsMissing) {
  expect_backward({x, Tensor()}, x,
                  "backward: saved.lse is empty; forward returns it when Call::lse is set");
}

TEST_F(ResultErrors, SavedLseOfAnotherShape) {
  expect_backward({x, x}, x, "backward: lse has shape [1, 2, 3, 4]; it must be [1, 2, 3]");
}

TEST_F(ResultErrors, ShapeOfDout) {
  expect_backward({x, rows}, shorter,
                  "backward: dout has shape [1, 2, 2, 4]; it must be [1, 2, 3, 4]");
}

TEST_F(ResultErrors, TypeOfDlse) {
  const Tensor dlse(DType::f16, {1, 2, 3});
  expect_error([&] { (void)compile(options).backward({x, x, x}, {x, rows}, x, dlse); },
               "backward: dlse holds f16; it must hold f32");
}

TEST_F(ResultErrors, ShapeOfDq) {
  expect_backward_into({shorter, x, x, {}},
                       "backward: dq has shape [1, 2, 2, 4]; it must be [1, 2, 3, 4]");
}

TEST_F(ResultErrors, TypeOfDk) {
  expect_backward_into({x, wide, x, {}}, "backward: dk holds f64; it must hold f32");
}

TEST_F(ResultErrors, DvOnTopOfItself) {
  const View repeated(x.view().data(), DType::f32, {1, 2, 3, 4}, {0, 0, 0, 0});
  expect_backward_into({x, x, repeated, {}},
                       "backward: dv has shape [1, 2, 3, 4] and strides [0, 0, 0, 0]; elements of "
                       "a result must not share memory");
}

TEST_F(ResultErrors, NoViewForAGradient) {
  options.score_mod = mods::alibi({"slopes", slopes});
  options.gradients = {"slopes"};
  expect_backward_into({x, x, x, {}}, "backward: no view for the gradient of \"slopes\" is given");
}

TEST_F(ResultErrors, AViewForNoGradient) {
  options.score_mod = mods::alibi({"slopes", slopes});
  expect_backward_into({x, x, x, {{"slopes", slopes}}},
                       "backward: a view for the gradient of \"slopes\" was passed, but "
                       "Options::gradients does not name it");
}

TEST_F(ResultErrors, TwoViewsForAGradient) {
  options.score_mod = mods::alibi({"slopes", slopes});
  options.gradients = {"slopes"};
  expect_backward_into({x, x, x, {{"slopes", slopes}, {"slopes", slopes}}},
                       "backward: two views for the gradient of \"slopes\" are given");
}

TEST_F(ResultErrors, ShapeOfAGradient) {
  options.score_mod = mods::alibi({"slopes", slopes});
  options.gradients = {"slopes"};
  expect_backward_into({x, x, x, {{"slopes", rows}}},
                       "backward: the gradient of \"slopes\" has shape [1, 2, 3]; it must be [2]");
}

TEST_F(ResultErrors, AGradientThatWasNotAskedFor) {
  const Backward nothing;
  expect_error([&] { (void)nothing.of("slopes"); },
               "backward: no gradient of \"slopes\" was requested");
}

}  // namespace
}  // namespace treadle
