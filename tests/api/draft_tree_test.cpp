// Speculation: drafted tokens form a tree behind a paged cache, and each sees its ancestors.
#include <gtest/gtest.h>

#include "sequence_batch.h"

namespace treadle {
namespace {

using test::PagedBatch;
using test::SequenceBatch;

TEST(DraftTrees, TokensSeeTheCacheAndTheirAncestors) {
  //        0
  //       / |
  //      1  2
  //     /  / |
  //    3  4  5
  constexpr std::int32_t parents[] = {-1, 0, 0, 1, 2, 2};
  constexpr std::int64_t cached = 150, drafted = 6, dim = 16;
  Tensor before(DType::i32, {1}), ancestors(DType::boolean, {1, drafted, drafted});
  before.data<std::int32_t>()[0] = cached;
  for (std::int32_t token = 0; token < drafted; ++token)
    for (std::int32_t at = token; at >= 0; at = parents[at])
      ancestors.at<bool>({0, token, at}) = true;
  Options options;
  options.mask =
      parse("where(kv < cached[b], kv <= q, ancestors[b, q - cached[b], kv - cached[b]])",
            {{"cached", before}, {"ancestors", ancestors}});
  const SequenceBatch batch(11, {{drafted, cached + drafted}}, 4, 2, dim, dim,
                            {DType::f32, DType::f32, DType::f32});
  const PagedBatch pages(batch, 16, PageOrder::heads_first, 12);
  Sequences sequences = batch.packed();
  sequences.keys = pages.keys();
  const Tensor tree = compile(options).forward(sequences).out;
  // Each branch as a sequence without the others. Keys then have other positions, so bits may differ.
  for (std::int32_t token = 0; token < drafted; ++token) {
    std::vector<std::int64_t> seen;
    for (std::int32_t at = token; at >= 0; at = parents[at]) seen.push_back(cached + at);
    for (std::int64_t key = cached; key-- > 0;) seen.push_back(key);
    std::ranges::reverse(seen);
    const auto rows = [&](const Tensor& from) {
      Tensor to(DType::f32, {1, 2, std::ssize(seen), dim});
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t i = 0; i < std::ssize(seen); ++i)
          for (std::int64_t d = 0; d < dim; ++d)
            to.at<float>({0, h, i, d}) =
                from.at<float>({0, h, seen[static_cast<std::size_t>(i)], d});
      return to;
    };
    Tensor q(DType::f32, {1, 4, 1, dim});
    for (std::int64_t h = 0; h < 4; ++h)
      for (std::int64_t d = 0; d < dim; ++d)
        q.at<float>({0, h, 0, d}) = batch.all[0].q.at<float>({0, h, token, d});
    const Tensor branch = attention({q, rows(batch.all[0].k), rows(batch.all[0].v)}).out;
    for (std::int64_t h = 0; h < 4; ++h)
      for (std::int64_t d = 0; d < dim; ++d)
        EXPECT_NEAR(tree.at<float>({token, h, d}), branch.at<float>({0, h, 0, d}), 1e-5);
  }
}

}  // namespace
}  // namespace treadle
