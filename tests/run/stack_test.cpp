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

// Kernels are compiled on this thread, which has room for that; then they run on a small one. Some
// half of its stack is for what is around them.
void expect_small_stack(const Options& options) {
  const Tensor x = random_tensor(1, DType::f32, {1, 2, stack_length, 8});
  const Attention attend = compile(options);
  const Inputs inputs{x, x, x};
  const Call call{.executor = serial_executor(), .lse = true};
  const Forward y = attend.forward(inputs, call);
  const Backward g = attend.backward(inputs, {y.out, y.lse}, x, std::nullopt, call);
  test::on_small_stack(48 << 10, [&] {
    EXPECT_TRUE(same_bits(attend.forward(inputs, call).out, y.out));
    const Backward again = attend.backward(inputs, {y.out, y.lse}, x, std::nullopt, call);
    EXPECT_TRUE(same_bits(again.dq, g.dq));
    for (const std::string& name : options.gradients)
      EXPECT_TRUE(same_bits(again.of(name), g.of(name)));
  });
  Options plain = options;
  plain.backend = Backend::reference;
  const Forward expected = attention(inputs, plain, call);
  EXPECT_LT(test::largest_difference(y.out, expected.out), 1e-4);
}

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

  void expect_small() const { expect_small_stack(options); }
};

TEST(SmallStack, IsEnoughForManyStagedReads) {
  ManyReads(100, "q, kv", {stack_length, stack_length}).expect_small();
}

TEST(SmallStack, IsEnoughForManyReadsInTheLanes) {
  ManyReads(100, "kv, q", {stack_length, stack_length}).expect_small();
}

TEST(SmallStack, IsEnoughForManyReadsOfQueries) {
  ManyReads(100, "q", {stack_length}).expect_small();
}

TEST(SmallStack, IsEnoughForManyGathers) {
  ManyReads(100, "q, kv * 2 % 64", {stack_length, stack_length}).expect_small();
}

// As many as a mod has that is just not cut into pieces.
TEST(SmallStack, IsEnoughForAsManyGathersAsAreWhole) {
  ManyReads(21, "q, kv * 2 % 64", {stack_length, stack_length}).expect_small();
}

TEST(SmallStack, IsEnoughForManyTerms) {
  std::string text = "score";
  for (int i = 0; i < 1600; ++i) text += fmt::format(" + 0.001 * float(q - {} * kv)", i % 50);
  Options options;
  options.score_mod = parse(text);
  expect_small_stack(options);
}

// Each of them is kept from the first key to the last, or from the first vector of queries on.
TEST(SmallStack, IsEnoughForManyTermsOfQueriesAndKeys) {
  for (const std::string of : {"q", "kv"}) {
    std::string text = "score";
    for (int i = 0; i < 800; ++i)
      text += fmt::format(" + where({} == {}, 0.5, 0.0) * score", of, i);
    Options options;
    options.score_mod = parse(text);
    expect_small_stack(options);
  }
}

}  // namespace
}  // namespace treadle
