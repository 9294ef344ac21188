// Masks of several terms, and later positions that nobody sees: a row keeps its bits when the
// sequence grows, forward and backward.
#include <gtest/gtest.h>

#include "base/copy.h"
#include "split_masks.h"

namespace treadle {
namespace {

using test::Random;
using test::random_int;

// The first positions of [batch, heads, positions, ...].
ConstView first_rows(const Tensor& tensor, std::int64_t count) {
  const ConstView whole = tensor;
  Dims shape = whole.shape();
  shape[2] = count;
  return {whole.data(), whole.dtype(), shape, whole.strides()};
}

struct RowResults {
  Tensor out, lse, max, dq;
};

// Of the first positions of these tensors.
RowResults results_of(const Attention& attention, const test::SplitTensors& tensors,
                      std::int64_t length, int threads) {
  const auto first = [&](const Tensor& tensor) { return first_rows(tensor, length); };
  const Inputs inputs{first(tensors.q), first(tensors.k), first(tensors.v)};
  const Call call{.executor = tbb_executor(threads), .lse = true, .max = true};
  Forward y = attention.forward(inputs, call);
  Backward g = attention.backward(inputs, {y.out, y.lse}, first(tensors.dout), first(tensors.dlse),
                                  {.executor = call.executor});
  return {std::move(y.out), std::move(y.lse), std::move(y.max), std::move(g.dq)};
}

void expect_same_rows(const RowResults& shorter, const RowResults& longer) {
  const auto expect = [&](const Tensor& a, const Tensor& b, const char* what) {
    const Tensor rows = base::convert(first_rows(b, a.size(2)), b.dtype());
    EXPECT_TRUE(test::same_bits(a, rows)) << what;
  };
  expect(shorter.out, longer.out, "out");
  expect(shorter.lse, longer.lse, "lse");
  expect(shorter.max, longer.max, "max");
  expect(shorter.dq, longer.dq, "dq");
}

void fuzz_lengths(std::uint64_t seed, bool across_chunks) {
  Random random = test::rng(seed);
  test::SplitMods mods = test::split_mods(random, {.causal = true});
  mods.score = test::random_score(random);
  SCOPED_TRACE(mods.text());
  const Attention attention = compile(mods.options());
  test::SplitShape shape = test::random_shape(random, 1);
  if (across_chunks) shape.batch = shape.heads = shape.key_heads = 1;
  shape.queries = shape.keys =
      across_chunks ? random_int(random, 1400, 1600) : random_int(random, 40, 300);
  const test::SplitTensors tensors(random, shape);
  const RowResults all = results_of(attention, tensors, shape.keys, 2);
  for (int i = 0; i < 2; ++i) {
    const std::int64_t length =
        across_chunks ? random_int(random, 1000, 1100) : random_int(random, 1, shape.keys - 1);
    SCOPED_TRACE(fmt::format("{} of {}", length, shape.keys));
    expect_same_rows(results_of(attention, tensors, length, i == 0 ? 1 : 3), all);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(PassesLength, RowsKeepTheirBits) {
  for (int round = 0; round < test::fuzz_count(60); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    fuzz_lengths(seed, false);
    if (HasFailure()) return;
  }
}

TEST(PassesLength, RowsKeepTheirBitsAcrossChunks) {
  for (int round = 0; round < test::fuzz_count(20); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    fuzz_lengths(seed, true);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace treadle
