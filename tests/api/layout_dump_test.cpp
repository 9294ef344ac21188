// TREADLE_DUMP=layout prints the layout of a call, once.
#include <gtest/gtest.h>

#include <string>

#include "environment.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

int count_of_layouts(const std::string& text) {
  int count = 0;
  for (std::size_t at = text.find("== layout"); at != std::string::npos;
       at = text.find("== layout", at + 1))
    ++count;
  return count;
}

TEST(LayoutDump, IsPrintedOnce) {
  const test::Environment dump("TREADLE_DUMP", "layout");
  const Tensor x(DType::f32, {1, 1, 40, 4});
  Options options;
  options.mask = mods::causal();
  const Attention causal = compile(options);
  const auto dumps_of = [](const auto& f) {
    testing::internal::CaptureStderr();
    f();
    return count_of_layouts(testing::internal::GetCapturedStderr());
  };
  Forward y;
  EXPECT_EQ(dumps_of([&] { y = causal.forward({x, x, x}, {.lse = true}); }), 1);
  EXPECT_EQ(dumps_of([&] { (void)causal.backward({x, x, x}, {y.out, y.lse}, x); }), 1);
  Layout layout;
  EXPECT_EQ(dumps_of([&] { layout = causal.layout({x, x, x}); }), 1);
  EXPECT_EQ(dumps_of([&] { (void)causal.forward({x, x, x}, {.layout = layout}); }), 0);
  const Tensor first(DType::i32, {1, 1, 1, 1});
  EXPECT_EQ(dumps_of([&] { (void)causal.layout(KeyLists{40, 8, first}, {x, x, x}); }), 1);
}

}  // namespace
}  // namespace treadle
