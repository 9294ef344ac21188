// Layouts of listed keys: forward and backward see what is listed and shown by the mask.
#include "treadle/key_lists.h"

#include <gtest/gtest.h>

#include "expect_error.h"
#include "listed_case.h"

namespace treadle {
namespace {

using test::ListedCase;
using test::ListedShape;

void expect_equivalent(const ListedShape& shape, std::uint64_t seed = 1) {
  const ListedCase c(seed, shape);
  c.expect_equivalent(c.attention().layout(c.lists(), c.inputs()));
}

TEST(KeyLists, PerBlockOfQueriesAndPerHead) { expect_equivalent({}); }

TEST(KeyLists, SingleKeysPerQuery) { expect_equivalent({.query_block = 1, .key_block = 1}); }

TEST(KeyLists, SingleKeysPerBlock) { expect_equivalent({.query_block = 32, .key_block = 1}); }

TEST(KeyLists, ForAllBatchesAndHeads) { expect_equivalent({.list_batch = 1, .list_heads = 1}); }

TEST(KeyLists, PerBatch) { expect_equivalent({.list_heads = 1}); }

TEST(KeyLists, PerKeyHead) { expect_equivalent({.list_heads = 2}); }

TEST(KeyLists, OfOneLengthWithoutCounts) { expect_equivalent({.counts = false}); }

TEST(KeyLists, InDoublePrecision) { expect_equivalent({.type = DType::f64}); }

TEST(KeyLists, InSixteenBits) {
  for (const DType type : {DType::bf16, DType::f16}) {
    const ListedCase c(3, {.type = type});
    Options other = c.options;
    other.mask = c.equivalent();
    const Layout layout = c.attention().layout(c.lists(), c.inputs());
    EXPECT_TRUE(test::same_bits(c.attention().forward(c.inputs(), {.layout = layout}).out,
                                compile(other).forward(c.inputs()).out));
  }
}

TEST(KeyLists, BlocksLargerThanTheSequence) {
  expect_equivalent({.query_block = 128, .key_block = 256});
}

TEST(KeyLists, FromShapesAlone) {
  const ListedCase c(5, {});
  const auto spec = [](const Tensor& t) { return TensorSpec(t.dtype(), t.shape()); };
  c.expect_equivalent(c.attention().layout(c.lists(), spec(c.q), spec(c.k), spec(c.v)));
}

// 64-bit indices that run backwards, and counts for all heads.
TEST(KeyLists, OfAnyTypeAndStrides) {
  ListedCase c(7, {.list_heads = 1, .counts = false});
  const Dims shape = c.indices.shape();
  Tensor reversed(DType::i64, shape);
  for (std::size_t i = 0; i < reversed.data<std::int64_t>().size(); ++i)
    reversed.data<std::int64_t>()[reversed.data<std::int64_t>().size() - 1 - i] =
        c.indices.data<std::int32_t>()[i];
  const std::int64_t longest = shape[3], rows = shape[2];
  const ConstView view(reversed.data<std::int64_t>().data() + reversed.count() - 1, DType::i64,
                       shape, {-rows * longest, 0, -longest, -1});
  c.expect_equivalent(
      c.attention().layout(KeyLists{c.s.query_block, c.s.key_block, view}, c.inputs()));
}

TEST(KeyLists, KeepNothingOfTheArrays) {
  ListedCase c(8, {});
  const Layout layout = c.attention().layout(c.lists(), c.inputs());
  c.indices = Tensor();
  c.list_counts = Tensor();
  c.expect_equivalent(layout);
}

// Tiles that share blocks of keys: a key that only one in four sees lies between those of two chunks
// of all others.
TEST(KeyLists, OfOneTileBetweenChunksOfOthers) {
  constexpr std::int64_t queries = 1536, block = 48, keys = 16384, own = 700;
  const Tensor q = test::random_tensor(1, DType::f32, {1, 1, queries, 8}),
               k = test::random_tensor(2, DType::f32, {1, 1, keys, 8}),
               v = test::random_tensor(3, DType::f32, {1, 1, keys, 8});
  const std::int64_t rows = queries / block, shared = keys / 512;
  Tensor indices(DType::i32, {1, 1, rows, shared + 1}), counts(DType::i32, {1, 1, rows});
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < shared; ++i)
      indices.at<std::int32_t>({0, 0, row, i}) = static_cast<std::int32_t>(i * 512);
    indices.at<std::int32_t>({0, 0, row, shared}) = own;
    counts.at<std::int32_t>({0, 0, row}) =
        static_cast<std::int32_t>(shared + (row % 4 == 0 ? 1 : 0));
  }
  const Attention all = compile({});
  const Inputs inputs{q, k, v};
  const Layout layout = all.layout(KeyLists{block, 1, indices, ConstView(counts)}, inputs);
  Options dense;
  dense.backend = Backend::reference;
  dense.mask = [=](Index, Index, Index at, Index kv) {
    return (kv % 512 == 0) | ((at % (4 * block) < block) & (kv == own));
  };
  EXPECT_LT(test::largest_difference(all.forward(inputs, {.layout = layout}).out,
                                     compile(dense).forward(inputs).out),
            1e-5);
}

TEST(KeyLists, OfNothingShowNothing) {
  const ListedCase c(9, {});
  const Tensor none(DType::i32, {1, 1, 5, 0});
  const Layout layout = c.attention().layout(KeyLists{16, 8, none}, c.inputs());
  EXPECT_EQ(layout.density(), 0);
  const Forward y = c.attention().forward(c.inputs(), {.layout = layout, .lse = true});
  for (const float x : y.out.data<float>()) EXPECT_EQ(x, 0);
  for (const float x : y.lse.data<float>()) EXPECT_EQ(x, -INFINITY);
  const Backward g =
      c.attention().backward(c.inputs(), {y.out, y.lse}, c.dout, {}, {.layout = layout});
  for (const Tensor* t : {&g.dq, &g.dk, &g.dv})
    for (const float x : t->data<float>()) EXPECT_EQ(x, 0);
}

// The captures of the mask are those of the call that makes the layout.
TEST(KeyLists, FollowTheMasksCaptures) {
  ListedCase c(10, {});
  c.options.mask = mods::window(Capture("size", 5));
  const Attention attend = c.attention();
  const Call wide{.captures = {{"size", 60}}};
  const Layout layout = attend.layout(c.lists(), c.inputs(), wide);
  Options fixed = c.options;
  fixed.mask = mods::window(60);
  c.options = fixed;
  Options other = c.options;
  other.mask = c.equivalent();
  EXPECT_TRUE(test::same_bits(
      attend.forward(c.inputs(), {.captures = {{"size", 60}}, .layout = layout}).out,
      compile(other).forward(c.inputs()).out));
}

TEST(KeyLists, BackwardMayRunTheForwardAgain) {
  ListedCase c(11, {});
  const Layout layout = c.attention().layout(c.lists(), c.inputs());
  const Forward y = c.attention().forward(c.inputs(), {.layout = layout, .lse = true});
  const Backward saved =
      c.attention().backward(c.inputs(), {y.out, y.lse}, c.dout, {}, {.layout = layout});
  c.options.save = Save::nothing;
  const Backward again = c.attention().backward(c.inputs(), {}, c.dout, {}, {.layout = layout});
  EXPECT_TRUE(test::same_bits(again.dq, saved.dq));
  EXPECT_TRUE(test::same_bits(again.dk, saved.dk));
  EXPECT_TRUE(test::same_bits(again.dv, saved.dv));
}

// Where NaN is met, backward runs once more; the lists hold there, too.
TEST(KeyLists, HoldWhereBackwardMeetsNan) {
  for (const bool per_head : {false, true}) {
    ListedCase c(12, {.list_batch = 1, .list_heads = per_head ? 4 : 1, .counts = false});
    c.dout.at<float>({0, 1, 69, 2}) = std::numeric_limits<float>::quiet_NaN();
    const Attention attend = c.attention();
    Options other = c.options;
    other.mask = c.equivalent();
    const Call listed{.layout = attend.layout(c.lists(), c.inputs()), .lse = true};
    const Forward y = attend.forward(c.inputs(), listed);
    const Backward here = attend.backward(c.inputs(), {y.out, y.lse}, c.dout, {}, listed);
    const Backward there = compile(other).backward(c.inputs(), {y.out, y.lse}, c.dout);
    std::int64_t nans = 0;
    for (const float x : here.dk.data<float>()) nans += std::isnan(x) ? 1 : 0;
    EXPECT_GT(nans, 0);
    EXPECT_LT(nans, here.dk.count());
    EXPECT_TRUE(test::same_bits(here.dq, there.dq));
    test::expect_alike(here.dk, there.dk);
    test::expect_alike(here.dv, there.dv);
    test::expect_alike(here.of("bias"), there.of("bias"));
  }
}

// The reference is the definition of what lists mean, too: bit for bit what the mask's table says,
// with its own layouts and with those of the CPU backend.
TEST(KeyLists, MeanTheSameToTheReference) {
  for (const std::int64_t query_block : {1, 16, 50}) {
    ListedCase c(14, {.query_block = query_block});
    const Layout of_cpu = c.attention().layout(c.lists(), c.inputs());
    c.options.backend = Backend::reference;
    const Attention attend = c.attention();
    Options other = c.options;
    other.mask = c.equivalent();
    const Forward expected = compile(other).forward(c.inputs(), {.lse = true});
    const Backward gradients =
        compile(other).backward(c.inputs(), {expected.out, expected.lse}, c.dout);
    for (const Layout& layout : {attend.layout(c.lists(), c.inputs()), of_cpu}) {
      const Call call{.layout = layout, .lse = true};
      const Forward y = attend.forward(c.inputs(), call);
      const Backward g = attend.backward(c.inputs(), {y.out, y.lse}, c.dout, {}, call);
      EXPECT_TRUE(test::same_bits(y.out, expected.out));
      EXPECT_TRUE(test::same_bits(y.lse, expected.lse));
      EXPECT_TRUE(test::same_bits(g.dq, gradients.dq));
      EXPECT_TRUE(test::same_bits(g.dk, gradients.dk));
      EXPECT_TRUE(test::same_bits(g.of("bias"), gradients.of("bias")));
    }
  }
}

// The reference's table has a name of its own, whatever the mask's captures are called.
TEST(KeyLists, OfAMaskWithAnyNames) {
  ListedCase c(15, {});
  const Tensor ids(DType::i32, {90});
  const Capture kinds("kinds", ids.view());
  c.options.mask = [kinds](Index, Index, Index q, Index kv) { return kinds(kv) == 0 && q != kv; };
  c.options.backend = Backend::reference;
  Options other = c.options;
  other.mask = c.equivalent();
  const Layout layout = c.attention().layout(c.lists(), c.inputs());
  EXPECT_TRUE(test::same_bits(c.attention().forward(c.inputs(), {.layout = layout}).out,
                              compile(other).forward(c.inputs()).out));
}

// A mask may fail at pairs that are not listed.
TEST(KeyLists, OnlyListedPairsAskTheMask) {
  const ListedCase c(13, {});
  Options options;
  const Tensor ids(DType::i32, {40});  // of 90 keys
  const Capture table("ids", ids.view());
  options.mask = [table](Index, Index, Index, Index kv) { return table(kv) == 0; };
  const Attention attend = compile(options);
  Tensor first(DType::i32, {1, 1, 1, 1});  // keys 0 .. 39
  const Layout layout = attend.layout(KeyLists{70, 40, first}, c.inputs());
  (void)attend.forward(c.inputs(), {.layout = layout});
  first.data<std::int32_t>()[0] = 1;  // keys 40 .. 79
  const Layout outside = attend.layout(KeyLists{70, 40, first}, c.inputs());
  EXPECT_THROW((void)attend.forward(c.inputs(), {.layout = outside}), ModError);
}

TEST(KeyLists, RandomShapes) {
  for (int round = 0; round < test::fuzz_count(40); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    const auto pick = [&](std::int64_t low, std::int64_t high) {
      return test::random_int(random, low, high);
    };
    ListedShape s{.batch = pick(1, 2), .key_heads = pick(1, 2)};
    const std::int64_t group = pick(1, 3);
    s.heads = s.key_heads * group;
    s.queries = pick(1, 120);
    s.keys = pick(1, 150);
    s.dim = pick(0, 1) == 0 ? 3 : 8;  // few, since each pair of dims compiles kernels
    s.value_dim = pick(0, 1) == 0 ? 8 : 5;
    s.query_block = pick(0, 2) == 0 ? 1 : pick(1, 70);
    s.key_block = pick(0, 2) == 0 ? 1 : pick(1, 70);
    s.list_batch = pick(0, 1) == 0 ? 1 : s.batch;
    const std::vector<std::int64_t> list_heads{1, s.key_heads, s.heads};
    s.list_heads = list_heads[static_cast<std::size_t>(pick(0, 2))];
    s.counts = pick(0, 1) == 0;
    ListedCase c(seed, s);
    const std::vector<MaskMod> masks{MaskMod(), mods::causal_lower_right(s.queries, s.keys),
                                     mods::window(20), mods::dilated(3) & mods::window(40)};
    c.options.mask = masks[static_cast<std::size_t>(pick(0, 3))];
    c.expect_equivalent(c.attention().layout(c.lists(), c.inputs()));
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace treadle
