// FlexAttention's block lists and OpenAI's block layouts: in, out, and there and back again.
#include "treadle/block_lists.h"

#include <gtest/gtest.h>

#include "expect_error.h"
#include "listed_case.h"

namespace treadle {
namespace {

using test::ListedCase;
using test::same_bits;

std::vector<std::int32_t> numbers(const Tensor& tensor) {
  const auto data = tensor.data<std::int32_t>();
  return {data.begin(), data.end()};
}

// The lists of a case as FlexAttention's, every third entry as a full block, and the full pairs.
struct Lists {
  Tensor counts, indices, full_counts, full_indices;
  Tensor full;  // bool [batch, heads, queries, keys]
  std::int64_t query_block, key_block;

  explicit Lists(const ListedCase& c)
      : counts(DType::i32, c.list_counts.shape()),
        indices(DType::i32, c.indices.shape()),
        full_counts(DType::i32, c.list_counts.shape()),
        full_indices(DType::i32, c.indices.shape()),
        full(DType::boolean, c.listed.shape()),
        query_block(c.s.query_block),
        key_block(c.s.key_block) {
    const std::int64_t rows = c.indices.size(2);
    for (std::int64_t list = 0; list < c.list_counts.count(); ++list) {
      const std::int64_t b = list / rows / c.s.heads, h = list / rows % c.s.heads;
      const std::int64_t row = list % rows;
      for (std::int64_t i = 0; i < c.list_counts.at<std::int32_t>({b, h, row}); ++i) {
        const std::int32_t block = c.indices.at<std::int32_t>({b, h, row, i});
        Tensor& count = i % 3 == 2 ? full_counts : counts;
        Tensor& to = i % 3 == 2 ? full_indices : indices;
        to.at<std::int32_t>({b, h, row, count.at<std::int32_t>({b, h, row})++}) = block;
        for (std::int64_t q = row * query_block;
             i % 3 == 2 && q < std::min((row + 1) * query_block, c.s.queries); ++q) {
          for (std::int64_t kv = block * key_block;
               kv < std::min((block + 1) * key_block, c.s.keys); ++kv)
            full.at<bool>({b, h, q, kv}) = true;
        }
      }
    }
  }

  [[nodiscard]] BlockListViews views() const {
    return {.query_block = query_block,
            .key_block = key_block,
            .kv_num_blocks = counts,
            .kv_indices = indices,
            .full_kv_num_blocks = full_counts,
            .full_kv_indices = full_indices};
  }
};

TEST(BlockListsIn, FullBlocksSkipTheMask) {
  for (const std::int64_t query_block : {8, 16, 48}) {
    const ListedCase c(20, {.query_block = query_block});
    const Lists lists(c);
    c.expect_equivalent(c.attention().layout(lists.views(), c.inputs()), &lists.full);
  }
}

// A chunk of a long sequence then has full blocks, which the mask may hide, beside others.
TEST(BlockListsIn, FullBlocksSkipTheMaskAmongManyKeys) {
  for (const std::int64_t key_block : {4, 16, 100}) {
    const ListedCase c(21, {.keys = 2500, .query_block = 16, .key_block = key_block});
    const Lists lists(c);
    c.expect_equivalent(c.attention().layout(lists.views(), c.inputs()), &lists.full);
  }
}

TEST(BlockListsIn, HoldWhereBackwardMeetsNan) {
  ListedCase c(21, {.counts = false});
  const Lists lists(c);
  c.dout.at<float>({1, 2, 60, 0}) = std::numeric_limits<float>::quiet_NaN();
  const Attention attend = c.attention();
  Options other = c.options;
  other.mask = c.equivalent(&lists.full);
  const Call listed{.layout = attend.layout(lists.views(), c.inputs()), .lse = true};
  const Forward y = attend.forward(c.inputs(), listed);
  const Backward here = attend.backward(c.inputs(), {y.out, y.lse}, c.dout, {}, listed);
  const Backward there = compile(other).backward(c.inputs(), {y.out, y.lse}, c.dout);
  EXPECT_TRUE(same_bits(here.dq, there.dq));
  test::expect_alike(here.dk, there.dk);
  test::expect_alike(here.dv, there.dv);
}

// A mask to its lists and back is the mask.
TEST(BlockListsOut, AreExact) {
  const ListedCase c(22, {});
  const Attention attend = c.attention();
  const BlockLists lists = attend.block_lists({16, 32}, c.inputs());
  EXPECT_EQ(lists.kv_num_blocks.shape(), (Dims{2, 4, 5}));
  EXPECT_EQ(lists.kv_indices.shape(), (Dims{2, 4, 5, 3}));
  const auto head = [](const Tensor& t) {
    const auto all = numbers(t);
    return std::vector<std::int32_t>(all.begin(), all.begin() + 5);
  };
  // q + 20 >= kv, 70 queries, 90 keys: blocks of 32 keys begin at 0, 32 and 64.
  EXPECT_EQ(head(lists.full_kv_num_blocks), (std::vector<std::int32_t>{0, 1, 1, 2, 2}));
  EXPECT_EQ(head(lists.kv_num_blocks), (std::vector<std::int32_t>{2, 1, 2, 1, 1}));
  const Layout layout = attend.layout(lists.views(), c.inputs());
  const Forward through = attend.forward(c.inputs(), {.layout = layout, .lse = true});
  const Forward plain = attend.forward(c.inputs(), {.lse = true});
  EXPECT_TRUE(same_bits(through.out, plain.out));
  EXPECT_TRUE(same_bits(through.lse, plain.lse));
}

TEST(BlockListsOut, OfALayoutShowTheSame) {
  for (const std::int64_t block : {8, 16, 20}) {
    ListedCase c(23, {});
    const auto both = [&](const MaskMod& mask) {
      c.options.mask = mask;
      const Attention attend = c.attention();
      const Layout layout = attend.layout(c.inputs());
      const BlockLists lists = layout.block_lists({block, block});
      const Layout back = attend.layout(lists.views(), c.inputs());
      return std::pair(attend.forward(c.inputs(), {.layout = back}).out,
                       attend.forward(c.inputs()).out);
    };
    const auto [listed, dilated] = both(mods::dilated(3));  // in another order than identity
    EXPECT_TRUE(same_bits(listed, dilated));
    // A mask of two terms adds keys in another order than a list of them.
    const auto [near, merged] = both(mods::dilated(3) | mods::window(9));
    test::expect_near(near, test::Array(merged), 1e-5);
  }
}

// Listed blocks come back, at their own size and at finer ones.
TEST(BlockListsOut, OfListedKeysShowTheSame) {
  const ListedCase c(24, {.query_block = 32, .key_block = 16});
  const Lists lists(c);
  const Attention attend = c.attention();
  const Layout layout = attend.layout(lists.views(), c.inputs());
  const Forward expected = attend.forward(c.inputs(), {.layout = layout, .lse = true});
  for (const BlockListOptions& options : {BlockListOptions{32, 16}, BlockListOptions{16, 8},
                                          BlockListOptions{1, 16}, BlockListOptions{32, 1}}) {
    const BlockLists back = attend.block_lists(options, c.inputs(), {.layout = layout});
    const Layout again = attend.layout(back.views(), c.inputs());
    const Forward y = attend.forward(c.inputs(), {.layout = again, .lse = true});
    EXPECT_TRUE(same_bits(y.out, expected.out));
    EXPECT_TRUE(same_bits(y.lse, expected.lse));
  }
}

TEST(BlockListsOut, ForTheReferenceToo) {
  ListedCase c(25, {});
  c.options.backend = Backend::reference;
  EXPECT_EQ(c.attention().block_lists({16, 32}, c.inputs()).kv_num_blocks.shape(), (Dims{2, 4, 5}));
  EXPECT_EQ(c.attention().block_layout(16, c.inputs()).query_blocks, 5);
}

// --- OpenAI's block layouts ---------------------------------------------------------------------

TEST(BlockLayouts, InOutAndBack) {
  for (const BlockLayout& blocks :
       {patterns::all_layout(96, {.size = 16, .heads = 4}),
        patterns::fixed_layout({.window = 32, .num_verts = 2}, 96, {.size = 16, .heads = 4}),
        patterns::local_layout({.window = 32}, 96, {.size = 16, .heads = 4})}) {
    ListedCase c(26, {.queries = 90, .keys = 90});  // the last blocks are cut
    c.options.mask = to_mask(blocks);
    const Attention attend = c.attention();
    const Layout layout = attend.layout(blocks, c.inputs());
    const Forward listed = attend.forward(c.inputs(), {.layout = layout, .lse = true});
    const Forward plain = attend.forward(c.inputs(), {.lse = true});
    EXPECT_TRUE(same_bits(listed.out, plain.out));
    EXPECT_TRUE(same_bits(listed.lse, plain.lse));

    for (const Call& call : {Call{}, Call{.layout = layout}}) {
      const BlockLayout found = attend.block_layout(16, c.inputs(), call);
      EXPECT_EQ(found.present, blocks.present);
      Options again = c.options;
      again.mask = to_mask(found);
      EXPECT_TRUE(same_bits(compile(again).forward(c.inputs()).out, plain.out));
    }
  }
}

// Blocks without a mask inside, under a mask of another kind.
TEST(BlockLayouts, PresentBlocksUnderAMask) {
  ListedCase c(27, {.queries = 64, .keys = 96});
  Tensor present(DType::i32, {4, 8, 12});
  for (std::size_t i = 0; i < present.data<std::int32_t>().size(); ++i)
    present.data<std::int32_t>()[i] = i % 3 == 0 ? 1 : 0;
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t h = 0; h < 4; ++h)
      for (std::int64_t q = 0; q < 64; ++q)
        for (std::int64_t kv = 0; kv < 96; ++kv)
          c.listed.at<bool>({b, h, q, kv}) = present.at<std::int32_t>({h, q / 8, kv / 8}) != 0;
  const BlockLayout blocks = block_layout(present, {.block_size = 8});
  c.expect_equivalent(c.attention().layout(blocks, c.inputs()));
}

TEST(BlockLayouts, OfListedKeys) {
  const ListedCase c(28, {.list_batch = 1, .list_heads = 4});
  const Attention attend = c.attention();
  const Layout layout = attend.layout(c.lists(), c.inputs());
  const BlockLayout found = attend.block_layout(8, c.inputs(), {.layout = layout});
  Options again = c.options;
  again.mask = to_mask(found);
  EXPECT_TRUE(same_bits(compile(again).forward(c.inputs()).out,
                        attend.forward(c.inputs(), {.layout = layout}).out));
}

}  // namespace
}  // namespace treadle
