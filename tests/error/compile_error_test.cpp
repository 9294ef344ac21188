// What compile says about options, and a call about captures.
#include <gtest/gtest.h>

#include <limits>

#include "expect_error.h"
#include "treadle/attention.h"
#include "treadle/mods.h"

namespace treadle {
namespace {

using test::expect_error;

class CompileErrors : public testing::Test {
 protected:
  Tensor x{DType::f32, {1, 2, 3, 4}};
  Tensor slopes{DType::f32, {2}};
  Tensor ids{DType::i32, {3}};
  Options options;

  void expect_refused(const std::string& message) {
    expect_error([&] { (void)compile(options); }, message);
  }
  void expect_call_refused(std::vector<Capture> captures, const std::string& message) {
    const Call call{.captures = std::move(captures), .executor = {}};
    expect_error([&] { (void)compile(options).forward({x, x, x}, call); }, message);
  }
};

TEST_F(CompileErrors, InfiniteScale) {
  options.scale = std::numeric_limits<double>::infinity();
  expect_refused("compile: the scale is inf; it must be finite");
}

TEST_F(CompileErrors, NanScale) {
  options.scale = std::numeric_limits<double>::quiet_NaN();
  expect_refused("compile: the scale is nan; it must be finite");
}

TEST_F(CompileErrors, AGradientTwice) {
  options.score_mod = mods::alibi({"slopes", slopes});
  options.gradients = {"slopes", "slopes"};
  expect_refused("compile: gradients names \"slopes\" twice");
}

TEST_F(CompileErrors, AGradientOfTheMask) {
  options.mask = mods::document({"ids", ids});
  options.gradients = {"ids"};
  expect_refused(
      "compile: gradients names \"ids\", which only the mask reads; a mask has no gradient");
}

TEST_F(CompileErrors, AGradientOfNothing) {
  options.score_mod = mods::alibi({"slopes", slopes});
  options.gradients = {"slope"};
  expect_refused("gradients: the score mod reads no capture \"slope\"");
}

TEST_F(CompileErrors, AGradientOfIntegers) {
  options.score_mod = mods::alibi({"ids", ids});
  options.gradients = {"ids"};
  expect_refused("gradients: capture \"ids\" holds i32; only floats have gradients");
}

TEST_F(CompileErrors, AGradientOfEightBits) {
  const Tensor slopes(DType::e4m3, {4});
  options.score_mod = mods::alibi({"slopes", slopes});
  options.gradients = {"slopes"};
  expect_refused("gradients: capture \"slopes\" holds e4m3; gradients need f64, f32, bf16 or f16");
}

TEST_F(CompileErrors, ACallBindsAnUnknownName) {
  options.score_mod = mods::alibi({"slopes", slopes});
  options.mask = mods::document({"ids", ids});
  expect_call_refused({{"slope", slopes}},
                      "forward: no capture is called \"slope\"; there are slopes, ids");
}

TEST_F(CompileErrors, ACallBindsWhereThereIsNothing) {
  expect_call_refused({{"slopes", slopes}},
                      "forward: no capture is called \"slopes\"; there are none");
}

TEST_F(CompileErrors, ACallBindsTwice) {
  options.score_mod = mods::alibi({"slopes", slopes});
  expect_call_refused({{"slopes", slopes}, {"slopes", slopes}},
                      "forward: capture \"slopes\" is bound twice");
}

TEST_F(CompileErrors, ACallBindsAnotherType) {
  options.score_mod = mods::alibi({"slopes", slopes});
  expect_call_refused(
      {{"slopes", ids}},
      "forward: capture \"slopes\" was compiled as f32 of rank 1, the call binds i32 "
      "of shape [3]; a new length needs no new compile, a new type or rank does");
}

TEST_F(CompileErrors, ACallBindsAnotherRank) {
  options.mask = mods::window({"size", 3});
  const Tensor sizes(DType::i64, {2});
  expect_call_refused(
      {{"size", sizes}},
      "forward: capture \"size\" was compiled as i64 of rank 0, the call binds i64 of "
      "shape [2]; a new length needs no new compile, a new type or rank does");
}

TEST_F(CompileErrors, BackwardNamesItselfWhenItBinds) {
  const Tensor rows(DType::f32, {1, 2, 3});
  const Call call{.captures = {{"slopes", slopes}}, .executor = {}};
  expect_error([&] { (void)compile({}).backward({x, x, x}, {x, rows}, x, {}, call); },
               "backward: no capture is called \"slopes\"; there are none");
}

}  // namespace
}  // namespace treadle
