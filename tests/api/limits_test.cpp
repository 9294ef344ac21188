// Graphs as large and as deep as they may be, through every stage before kernels, with little stack.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "expect_error.h"
#include "plain_attention.h"
#include "small_stack.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

constexpr std::size_t limit_stack = 512 << 10;
constexpr int limit_depth = 30000;

TEST(DeepMods, OfTracedOperations) {
  test::on_small_stack(limit_stack, [] {
    Options options;
    options.score_mod = [](Score s, Index, Index, Index, Index) {
      Float x = s;
      for (int i = 0; i < limit_depth / 2; ++i) x = x * 0.5 + 1.0;
      return x;
    };
    options.mask = [](Index, Index, Index q, Index kv) {
      Index x = q;
      for (int i = 0; i < limit_depth - 10; ++i) x = kv - x;
      return x > 0;
    };
    options.most_nodes = 1 << 20;  // for the derivative
    EXPECT_FALSE(compile(options).describe().empty());
  });
}

TEST(DeepMods, OfText) {
  std::string text = "a0 = score;";
  for (int i = 0; i < limit_depth - 10; ++i) text += fmt::format("a{} = kv - a{};", i + 1, i);
  text += fmt::format("a{}", limit_depth - 10);
  test::on_small_stack(limit_stack, [&] {
    Options options;
    options.score_mod = parse(text);
    options.most_nodes = 1 << 20;
    EXPECT_FALSE(compile(options).describe().empty());
  });
}

// What neither the score nor an index takes part in.
TEST(DeepMods, OfLooseValues) {
  test::on_small_stack(limit_stack, [] {
    const float one = 1;
    const Capture scalar("scalar", ConstView(&one, DType::f32, {}));
    Options options;
    options.score_mod = [&](Score s, Index, Index, Index, Index) {
      Float x = Float(scalar());
      for (int i = 0; i < limit_depth - 10; ++i) x = x + scalar();
      return s + x;
    };
    options.most_nodes = 1 << 20;
    EXPECT_FALSE(compile(options).describe().empty());
  });
}

TEST(LargeMods, AreRefused) {
  Options options;
  options.score_mod = [](Score s, Index, Index, Index, Index) {
    Float x = s;
    for (int i = 0; i < 40000; ++i) x = x + 1.0;
    return x;
  };
  test::expect_error([&] { (void)compile(options); },
                     "compile: the score mod has 40002 nodes; Options::most_nodes allows 32768");
  options.most_nodes = 40002;
  EXPECT_NO_THROW((void)compile(options));
  options = {};
  options.most_nodes = 2;
  options.mask = parse("q >= kv");
  test::expect_error([&] { (void)compile(options); },
                     "compile: the mask has 3 nodes; Options::most_nodes allows 2");
  options.mask = {};
  options.score_mod = parse("tanh(score)");
  test::expect_error(
      [&] { (void)compile(options); },
      "compile: the derivative of the score mod has 7 nodes; Options::most_nodes allows 2");
}

}  // namespace
}  // namespace treadle
