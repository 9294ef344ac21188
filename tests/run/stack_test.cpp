// Kernels need little stack, whatever their mods are like: what they keep is in scratch.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <list>

#include "plain_attention.h"
#include "small_stack.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

using test::random_tensor;
using test::same_bits;

constexpr std::int64_t stack_length = 70;

// So many captures, all read alike, and a part of them learned.
struct ManyReads {
  std::list<Tensor> tensors;
  Options options;

  ManyReads(int count, std::string_view index, const Dims& shape) {
    std::vector<Capture> captures;
    std::string text = "score";
    for (int i = 0; i < count; ++i) {
      tensors.push_back(random_tensor(static_cast<std::uint64_t>(i), DType::f32, shape));
      captures.emplace_back(fmt::format("c{}", i), ConstView(tensors.back()));
      text += fmt::format(" + {} * c{}[{}]", i % 2 == 0 ? 0.01 : -0.01, i, index);
    }
    options.score_mod = parse(text, captures);
    options.mask = mods::causal();
    options.gradients = {"c0"};
  }

  // Kernels are compiled on this thread, which has room for that; then they run on a small one.
  void expect_small(std::size_t stack) const {
    const Tensor x = random_tensor(1, DType::f32, {1, 2, stack_length, 8});
    const Attention attend = compile(options);
    const Inputs inputs{x, x, x};
    const Call call{.executor = serial_executor(), .lse = true};
    const Forward y = attend.forward(inputs, call);
    const Backward g = attend.backward(inputs, {y.out, y.lse}, x, std::nullopt, call);
    test::on_small_stack(stack, [&] {
      EXPECT_TRUE(same_bits(attend.forward(inputs, call).out, y.out));
      const Backward again = attend.backward(inputs, {y.out, y.lse}, x, std::nullopt, call);
      EXPECT_TRUE(same_bits(again.dq, g.dq));
      EXPECT_TRUE(same_bits(again.of("c0"), g.of("c0")));
    });
    Options plain = options;
    plain.backend = Backend::reference;
    const Forward expected = attention(inputs, plain, call);
    EXPECT_LT(test::largest_difference(y.out, expected.out), 1e-4);
  }
};

TEST(SmallStack, IsEnoughForManyStagedReads) {
  ManyReads(100, "q, kv", {stack_length, stack_length}).expect_small(256 << 10);
}

TEST(SmallStack, IsEnoughForManyReadsInTheLanes) {
  ManyReads(100, "kv, q", {stack_length, stack_length}).expect_small(256 << 10);
}

TEST(SmallStack, IsEnoughForManyReadsOfQueries) {
  ManyReads(100, "q", {stack_length}).expect_small(256 << 10);
}

TEST(SmallStack, IsEnoughForManyGathers) {
  ManyReads(100, "q, kv * 2 % 64", {stack_length, stack_length}).expect_small(256 << 10);
}

}  // namespace
}  // namespace treadle
