// Reads outside a buffer, where they matter: the call fails, says where, and has written nothing.
#include <gtest/gtest.h>

#include <vector>

#include "expect_error.h"
#include "plain_attention.h"
#include "treadle/attention.h"
#include "treadle/mods.h"

namespace treadle {
namespace {

using test::expect_error;
using test::random_tensor;

class PoisonErrors : public testing::Test {
 protected:
  Tensor x = random_tensor(1, DType::f32, {1, 1, 4, 2});
  std::vector<float> data = std::vector<float>(3);
  Capture three{"three", View(data.data(), {3})};
  Options options;

  // Of a call in one thread: with more, whoever fails first is heard.
  void expect_refused(const std::string& message) {
    const Call call{.captures = {}, .executor = serial_executor()};
    expect_error([&] { (void)compile(options).forward({x, x, x}, call); }, message);
  }
};

TEST_F(PoisonErrors, AScoreThatIsSeen) {
  options.score_mod = [this](Score s, Index, Index, Index q, Index) { return s + three(q); };
  expect_refused(
      "score mod: three: index 3 along dimension 0 is outside its length 3, at (b 0, h 0, q 3, kv "
      "0)");
}

TEST_F(PoisonErrors, ANegativeIndex) {
  options.score_mod = [this](Score s, Index, Index, Index q, Index kv) {
    return s + three(q - kv);
  };
  expect_refused(
      "score mod: three: index -1 along dimension 0 is outside its length 3, at (b 0, h 0, q 0, kv "
      "1)");
}

TEST_F(PoisonErrors, AMask) {
  options.mask = [this](Index, Index, Index, Index kv) { return three(kv) == 0; };
  expect_refused(
      "mask: three: index 3 along dimension 0 is outside its length 3, at (b 0, h 0, q 0, kv 3)");
}

TEST_F(PoisonErrors, DivisionByARuntimeZero) {
  options.mask = [](Index, Index, Index q, Index kv) { return floor_div(q, kv) == 0; };
  expect_refused("mask: floor_div: the divisor is 0, at (b 0, h 0, q 0, kv 0)");
}

TEST_F(PoisonErrors, AnEmptyBuffer) {
  options.score_mod = [](Score s, Index, Index h, Index, Index) {
    return s + Capture("none", View())(h);
  };
  expect_refused(
      "score mod: none: index 0 along dimension 0 is outside its length 0, at (b 0, h 0, q 0, kv "
      "0)");
}

TEST_F(PoisonErrors, BackwardToo) {
  options.score_mod = [this](Score s, Index, Index, Index q, Index) { return s + three(q); };
  const Tensor rows(DType::f32, {1, 1, 4});
  expect_error([&] { (void)compile(options).backward({x, x, x}, {x, rows}, x); },
               "score mod: three: index 3 along dimension 0 is outside its length 3, at (b 0, h 0, "
               "q 3, kv 0)");
}

// 4096 * 4096 + 3 is rounded up in fp32, where the kernel's index is one too many.
TEST_F(PoisonErrors, AnIndexThatOnlyTheKernelRoundsSo) {
  const std::vector<float> q{4096, 1}, k{4096, 3}, table(8);
  const ConstView queries(q.data(), DType::f32, {1, 1, 1, 2}),
      keys(k.data(), DType::f32, {1, 1, 1, 2});
  options.scale = 1;
  options.score_mod =
      parse("score + t[int(score) - 16777212]", {{"t", ConstView(table.data(), DType::f32, {8})}});
  expect_error(
      [&] { (void)compile(options).forward({queries, keys, keys}); },
      "score mod: t: index 8 along dimension 0 is outside its length 8, at (b 0, h 0, q 0, "
      "kv 0)");
}

TEST_F(PoisonErrors, ABufferThatTheCallMadeTooShort) {
  options.score_mod = [this](Score s, Index, Index, Index q, Index) {
    return s + three(min(q, 2));
  };
  const Attention attend = compile(options);
  EXPECT_NO_THROW((void)attend.forward({x, x, x}));
  const Call call{.captures = {{"three", View(data.data(), {2})}}, .executor = serial_executor()};
  expect_error([&] { (void)attend.forward({x, x, x}, call); },
               "score mod: three: index 2 along dimension 0 is outside its length 2, at (b 0, h 0, "
               "q 2, kv 0)");
}

// What the mask hides, and what where() does not choose, may read anywhere.
TEST_F(PoisonErrors, NotWhereItDoesNotMatter) {
  options.gradients = {"three"};
  options.score_mod = [this](Score s, Index, Index, Index q, Index kv) {
    return where(kv < 2, s + three(q), s + three(q + 1) * 2);
  };
  options.mask = [this](Index, Index, Index q, Index kv) {
    return q < 3 && (kv < 2 || q < 2) && (q < 3 || three(q) == 0);
  };
  const Attention attend = compile(options);
  const Forward y = attend.forward({x, x, x}, {.lse = true, .max = true});
  EXPECT_NO_THROW((void)attend.backward({x, x, x}, {y.out, y.lse}, x));
}

TEST_F(PoisonErrors, NothingIsWrittenByForward) {
  options.score_mod = [this](Score s, Index, Index, Index q, Index) { return s + three(q); };
  Tensor out(DType::f32, {1, 1, 4, 2});
  Tensor lse(DType::f32, {1, 1, 4});
  Tensor max(DType::f32, {1, 1, 4});
  for (float& f : out.data<float>()) f = 7;
  const Tensor before = out.clone();
  EXPECT_THROW(compile(options).forward_into({out, lse, max}, {x, x, x}), Error);
  EXPECT_TRUE(test::same_bits(out, before));
  EXPECT_TRUE(test::same_bits(lse, Tensor(DType::f32, {1, 1, 4})));
  EXPECT_TRUE(test::same_bits(max, Tensor(DType::f32, {1, 1, 4})));
}

TEST_F(PoisonErrors, NothingIsWrittenByBackward) {
  options.gradients = {"three"};
  options.score_mod = [this](Score s, Index, Index, Index q, Index) { return s + three(q); };
  const Tensor rows(DType::f32, {1, 1, 4});
  Tensor gradients(DType::f32, {1, 1, 4, 2});
  Tensor captured(DType::f32, {3});
  for (float& f : gradients.data<float>()) f = 7;
  const Tensor before = gradients.clone();
  EXPECT_THROW(
      compile(options).backward_into({gradients, gradients, gradients, {{"three", captured}}},
                                     {x, x, x}, {x, rows}, x),
      Error);
  EXPECT_TRUE(test::same_bits(gradients, before));
  EXPECT_TRUE(test::same_bits(captured, Tensor(DType::f32, {3})));
}

}  // namespace
}  // namespace treadle
