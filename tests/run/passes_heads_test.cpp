// Masks whose terms are for some heads, batches or queries only, or for none: what passes leave out
// is as if they had found nothing.
#include <gtest/gtest.h>

#include "brute_layout.h"
#include "close.h"
#include "split_masks.h"

namespace treadle {
namespace {

using test::Random;

struct MixedCase {
  const char* name;
  const char* mask;

  friend void PrintTo(const MixedCase& c, std::ostream* out) { *out << c.name; }
};

const MixedCase mixed_cases[] = {
    {"local_and_strided", "q >= kv && where(h == 0, q - kv < 7, (q - kv) % 5 == 0)"},
    {"three_kinds",
     "q >= kv && where(h % 3 == 0, q - kv < 7, where(h % 3 == 1, (q - kv) % 5 == 0, "
     "q // 8 == kv // 8))"},
    {"both_in_one_head", "q >= kv && (q - kv < 4 || h == 1 && (q - kv) % 6 == 0)"},
    {"by_batch", "q - kv < 4 && b == 0 || (q - kv) % 3 == 0 && b == 1"},
    {"by_batch_and_head",
     "q // 6 == kv // 6 && b == h || kv % 7 == 2 && b != h || abs(q - kv) < 2"},
    {"no_such_head", "abs(q - kv) < 5 || h == 90 && (q - kv) % 4 == 0"},
    {"only_such_a_head", "h == 91 && q - kv < 5 || h == 90 && (q - kv) % 4 == 0"},
    {"later_keys_only", "kv >= 1000 && q - kv < 5 || (q - kv) % 9 == 3"},
    {"queries_that_see_nothing",
     "abs(q - 14) > 2 && (q >= kv && q - kv < 3 || kv % 8 == 7 && q > 20)"},
    {"first_queries_see_nothing", "q > 11 && (kv < 3 || (q - kv) % 10 == 0)"},
    {"four_terms",
     "q - kv < 3 && q >= kv || kv % 11 == 0 || (q - kv) % 7 == 0 && h > 0 || q // 4 == kv // 4"},
};

class MixedMasks : public testing::TestWithParam<MixedCase> {
 protected:
  Options options;

  MixedMasks() {
    options.mask = parse(GetParam().mask);
    options.scale = 0.25;
  }
  static test::SplitTensors tensors(const test::SplitShape& shape) {
    Random random = test::rng(7);
    return {random, shape};
  }
};

INSTANTIATE_TEST_SUITE_P(Cases, MixedMasks, testing::ValuesIn(mixed_cases),
                         [](const auto& info) { return std::string(info.param.name); });

// All lengths with the kernels of one mask; also none at all.
TEST_P(MixedMasks, AreTheDefinition) {
  const Attention fast = compile(options);
  Options unsaved = options;
  unsaved.save = Save::nothing;
  const Attention again = compile(unsaved);
  options.backend = Backend::reference;
  const Attention exact = compile(options);
  for (const test::SplitShape& shape :
       {test::SplitShape{.batch = 2, .heads = 6, .key_heads = 2, .queries = 50, .keys = 50},
        test::SplitShape{.batch = 1, .heads = 3, .key_heads = 3, .queries = 70, .keys = 33},
        test::SplitShape{.batch = 2, .heads = 2, .key_heads = 1, .queries = 1, .keys = 40},
        test::SplitShape{.batch = 1, .heads = 2, .key_heads = 1, .queries = 30, .keys = 1},
        test::SplitShape{.batch = 1, .heads = 2, .key_heads = 1, .queries = 30, .keys = 0},
        test::SplitShape{.batch = 1, .heads = 2, .key_heads = 1, .queries = 0, .keys = 9}}) {
    SCOPED_TRACE(
        fmt::format("{} heads, {} queries, {} keys", shape.heads, shape.queries, shape.keys));
    const test::SplitTensors t = tensors(shape);
    const Call call{.executor = tbb_executor(2), .lse = true, .max = true};
    Forward y = fast.forward(t.inputs(), call);
    Forward expected = exact.forward(t.inputs(), call);
    const Backward g = fast.backward(t.inputs(), {y.out, y.lse}, t.dout, t.dlse, call);
    const Backward slopes = exact.backward(t.inputs(), {y.out, y.lse}, t.dout, t.dlse, call);
    EXPECT_TRUE(test::same_bits(again.backward(t.inputs(), {}, t.dout, t.dlse, call).dv, g.dv));
    EXPECT_LE(test::largest_difference(g.dq, slopes.dq), 1e-4);
    EXPECT_LE(test::largest_difference(g.dk, slopes.dk), 1e-4);
    EXPECT_LE(test::largest_difference(g.dv, slopes.dv), 1e-4);
    test::expect_alike({std::move(y.out), std::move(y.lse), std::move(y.max)},
                       {std::move(expected.out), std::move(expected.lse), std::move(expected.max)},
                       1e-5);
    if (HasFailure()) return;
  }
}

// A layout that is held serves other tensors, types and dims, as often as one likes.
TEST_P(MixedMasks, KeepTheirLayout) {
  const test::SplitTensors t =
      tensors({.batch = 2, .heads = 4, .key_heads = 2, .queries = 45, .keys = 60});
  const Attention attention = compile(options);
  const Layout layout = attention.layout(t.inputs());
  const auto forward = [&](const Attention& f, const test::SplitTensors& of, const Layout& held) {
    Forward y = f.forward(of.inputs(), {.layout = held, .lse = true, .max = true});
    return test::Rows{std::move(y.out), std::move(y.lse), std::move(y.max)};
  };
  const test::Rows expected = forward(attention, t, {});
  for (int again = 0; again < 2; ++again)
    EXPECT_TRUE(same_rows(forward(attention, t, layout), expected));
  const Attention other = compile(options);
  EXPECT_TRUE(same_rows(forward(other, t, layout), expected));
  const test::SplitTensors wide = tensors(
      {.batch = 2, .heads = 4, .key_heads = 1, .queries = 45, .keys = 60, .type = DType::f64});
  EXPECT_TRUE(same_rows(forward(attention, wide, layout), forward(attention, wide, {})));
}

// What every pair of the mask is, counted.
struct Pairs {
  std::vector<std::vector<test::Sight>> of_heads;  // by batch and head
  std::int64_t visible = 0, all = 0;
};

Pairs pairs_of(const MaskMod& mask, const layout::Extent& extent) {
  const ir::Graph graph = test::mods_of({}, mask).mask;
  Pairs pairs;
  for (std::int64_t b = 0; b < extent.batch; ++b) {
    for (std::int64_t h = 0; h < extent.heads; ++h) {
      pairs.of_heads.push_back(test::every_pair({graph, {}}, extent, b, h));
      pairs.visible += std::ranges::count(pairs.of_heads.back(), test::Sight::visible);
      pairs.all += std::ssize(pairs.of_heads.back());
    }
  }
  return pairs;
}

// The lists of several passes are one list: full blocks are visible all over, pairs of absent ones
// are hidden.
TEST_P(MixedMasks, ShowTheirPairsAsBlockLists) {
  const layout::Extent extent{2, 3, 50, 44};
  const test::SplitTensors t = tensors({.batch = 2, .heads = 3, .queries = 50, .keys = 44});
  const Attention attention = compile(options);
  const Layout layout = attention.layout(t.inputs());
  constexpr std::int64_t block = 8;
  const BlockLists lists = layout.block_lists({.query_block = block, .key_block = block});
  const Pairs pairs = pairs_of(options.mask, extent);
  const auto listed = [&](const Tensor& numbers, const Tensor& indices, std::int64_t b,
                          std::int64_t h, std::int64_t i, std::int64_t j) {
    // Batches and heads that are alike are there once.
    b = std::min(b, numbers.size(0) - 1), h = std::min(h, numbers.size(1) - 1);
    for (std::int32_t n = 0; n < numbers.at<std::int32_t>({b, h, i}); ++n)
      if (indices.at<std::int32_t>({b, h, i, n}) == j) return true;
    return false;
  };
  for (std::int64_t b = 0; b < extent.batch; ++b) {
    for (std::int64_t h = 0; h < extent.heads; ++h) {
      const auto& sights = pairs.of_heads[static_cast<std::size_t>(b * extent.heads + h)];
      for (std::size_t at = 0; at < sights.size(); ++at) {
        const auto q = static_cast<std::int64_t>(at) / 44, kv = static_cast<std::int64_t>(at) % 44;
        const bool full =
            listed(lists.full_kv_num_blocks, lists.full_kv_indices, b, h, q / block, kv / block);
        const bool partial =
            listed(lists.kv_num_blocks, lists.kv_indices, b, h, q / block, kv / block);
        ASSERT_FALSE(full && partial);
        ASSERT_TRUE(!full || sights[at] == test::Sight::visible) << q << " " << kv;
        ASSERT_TRUE(full || partial || sights[at] == test::Sight::hidden) << q << " " << kv;
      }
    }
  }
  // And as a layout of lists.
  const Layout from_lists = attention.layout(lists.views(), t.inputs());
  EXPECT_LE(test::largest_difference(attention.forward(t.inputs(), {.layout = from_lists}).out,
                                     attention.forward(t.inputs(), {.layout = layout}).out),
            1e-5);
}

TEST_P(MixedMasks, SayHowDenseTheyAre) {
  const test::SplitTensors t = tensors({.batch = 2, .heads = 3, .queries = 50, .keys = 44});
  const Layout layout = compile(options).layout(t.inputs());
  const Pairs pairs = pairs_of(options.mask, {2, 3, 50, 44});
  // What is visible at least; at most every pass everything.
  EXPECT_GE(layout.density() * static_cast<double>(pairs.all) + 1e-6,
            static_cast<double>(pairs.visible));
  EXPECT_LE(layout.density(), static_cast<double>(layout.held()->terms.size()));
  EXPECT_GT(layout.held()->terms.size(), 1u);
  EXPECT_GT(layout.bytes(), 0);
  const std::string text = layout.describe();
  EXPECT_NE(text.find("tiles"), std::string::npos) << text;
}

}  // namespace
}  // namespace treadle
