// Bad input of calls with sequences: each names the call, the numbers and the rule.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "expect_error.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

using test::expect_error;

// Two sequences: 1 query and 3 keys, 2 queries and 4 keys; pages of 4.
struct Good {
  Tensor q{DType::f32, {3, 4, 8}}, k{DType::f32, {7, 2, 8}}, v{DType::f32, {7, 2, 8}};
  Tensor q_starts{DType::i32, {3}}, k_starts{DType::i64, {3}};
  Tensor k_pool{DType::f32, {5, 2, 4, 8}}, v_pool{DType::f32, {5, 2, 4, 8}};
  Tensor table{DType::i32, {2, 2}}, lengths{DType::i32, {2}};
  Tensor scales{DType::f32, {5, 2, 4}};
  Attention attention = compile({});

  Good() {
    q_starts.data<std::int32_t>()[1] = 1;
    q_starts.data<std::int32_t>()[2] = 3;
    k_starts.data<std::int64_t>()[1] = 3;
    k_starts.data<std::int64_t>()[2] = 7;
    lengths.data<std::int32_t>()[0] = 3;
    lengths.data<std::int32_t>()[1] = 4;
    table.data<std::int32_t>()[0] = 4;
    table.data<std::int32_t>()[2] = 1;
    for (float& scale : scales.data<float>()) scale = 1;
  }
  [[nodiscard]] Sequences packed() const { return {q, q_starts, PackedKeys{k, v, k_starts}}; }
  [[nodiscard]] PagedKeys pages() const { return {k_pool, v_pool, table, lengths}; }
  void expect(const Sequences& given, const std::string& message, const Call& call = {}) const {
    expect_error([&] { (void)attention.forward(given, call); }, message);
  }
  void expect_pages(const PagedKeys& keys, const std::string& message) const {
    expect({q, q_starts, keys}, message);
  }
};

TEST(SequencesError, GoodOnesPass) {
  const Good good;
  (void)good.attention.forward(good.packed());
  (void)good.attention.forward({good.q, good.q_starts, good.pages()});
}

TEST(SequencesError, QueriesThatAreNotPacked) {
  const Good good;
  const Tensor q(DType::f32, {1, 4, 3, 8});
  good.expect({q, good.q_starts, PackedKeys{good.k, good.v, good.k_starts}},
              "forward: q has shape [1, 4, 3, 8]; it must be [queries, heads, dim]");
}

TEST(SequencesError, StartsOfAnotherType) {
  const Good good;
  const Tensor starts(DType::f32, {3});
  good.expect({good.q, starts, PackedKeys{good.k, good.v, good.k_starts}},
              "forward: q_starts holds f32 of shape [3]; it must be a vector of i32 or i64");
}

TEST(SequencesError, NoStarts) {
  const Good good;
  const Tensor starts(DType::i32, {0});
  good.expect({good.q, starts, PackedKeys{good.k, good.v, good.k_starts}},
              "forward: q_starts is empty; it holds 0 first, then where each sequence ends");
}

TEST(SequencesError, StartsThatDoNotBeginWithZero) {
  Good good;
  good.q_starts.data<std::int32_t>()[0] = 1;
  good.expect(good.packed(), "forward: q_starts begins with 1; it must begin with 0");
}

TEST(SequencesError, StartsThatFall) {
  Good good;
  good.q_starts.data<std::int32_t>()[1] = 5;
  good.expect(good.packed(), "forward: q_starts holds 3 after 5; starts must not fall");
}

TEST(SequencesError, StartsOfOtherRows) {
  Good good;
  good.k_starts.data<std::int64_t>()[2] = 6;
  good.expect(good.packed(), "forward: k_starts ends with 6, there are 7 keys; they must be equal");
}

TEST(SequencesError, OtherNumbersOfSequences) {
  const Good good;
  Tensor starts(DType::i32, {2});
  starts.data<std::int32_t>()[1] = 7;
  good.expect({good.q, good.q_starts, PackedKeys{good.k, good.v, starts}},
              "forward: q_starts is for 2 sequences, k_starts for 1; they must be equal");
}

TEST(SequencesError, MoreQueriesThanKeys) {
  Good good;
  good.k_starts.data<std::int64_t>()[1] = 6;
  good.expect(good.packed(),
              "forward: sequence 1 has 2 queries and 1 keys; queries are the last positions of a "
              "sequence unless q_offsets says where they stand");
  Call call;
  call.q_offsets = {0};
  (void)good.attention.forward(good.packed(), call);
}

TEST(SequencesError, OffsetsOfOtherSequences) {
  const Good good;
  Call call;
  call.q_offsets = {1, 2, 3};
  good.expect(good.packed(),
              "forward: there are 3 q_offsets, and 2 sequences; there must be one for each, or one "
              "for all",
              call);
}

TEST(SequencesError, ALayout) {
  const Good good;
  const Tensor q(DType::f32, {1, 4, 1, 8}), k(DType::f32, {1, 2, 3, 8});
  Call call;
  call.layout = good.attention.layout({q, k, k});
  good.expect(good.packed(),
              "forward: a layout is given; sequences of different lengths make their own", call);
}

TEST(SequencesError, PagesOfDifferentPools) {
  const Good good;
  const Tensor v(DType::f32, {4, 2, 4, 8});
  PagedKeys keys = good.pages();
  keys.v = v;
  good.expect_pages(keys, "forward: k has 5 pages of 4 tokens, v 4 of 4; they must be equal");
}

TEST(SequencesError, PagesWithoutTokens) {
  const Good good;
  const Tensor pool(DType::f32, {5, 2, 0, 8});
  PagedKeys keys = good.pages();
  keys.k = keys.v = pool;
  good.expect_pages(keys, "forward: a page has 0 tokens; it must have at least 1");
}

TEST(SequencesError, PoolsWithOtherLastStrides) {
  const Good good;
  PagedKeys keys = good.pages();
  keys.k = ConstView(good.k_pool.data<float>().data(), {5, 2, 4, 8}, {64, 32, 1, 4});
  good.expect_pages(keys, "forward: the last stride of k is 4; that of a pool must be 1");
}

TEST(SequencesError, TablesOfAnotherType) {
  const Good good;
  const Tensor table(DType::i64, {2, 2});
  PagedKeys keys = good.pages();
  keys.table = table;
  good.expect_pages(
      keys,
      "forward: the page table holds i64 of shape [2, 2]; it must be [sequences, pages] of "
      "i32");
}

TEST(SequencesError, LengthsBeyondTheTable) {
  Good good;
  good.lengths.data<std::int32_t>()[1] = 9;
  good.expect_pages(good.pages(),
                    "forward: sequence 1 has length 9; its 2 pages of 4 tokens hold 0 to 8");
}

TEST(SequencesError, NegativeLengths) {
  Good good;
  good.lengths.data<std::int32_t>()[0] = -1;
  good.expect_pages(good.pages(),
                    "forward: sequence 0 has length -1; its 2 pages of 4 tokens hold 0 to 8");
}

TEST(SequencesError, PagesOutsideThePool) {
  for (const std::int32_t page : {5, -1}) {
    Good good;
    good.table.data<std::int32_t>()[2] = page;
    good.expect_pages(good.pages(), "forward: page 0 of sequence 1 is " + std::to_string(page) +
                                        "; the pool has 5 pages, from 0 on");
  }
}

TEST(SequencesError, PagesBehindASequenceMeanNothing) {
  Good good;
  good.table.data<std::int32_t>()[1] = 99;
  (void)good.attention.forward({good.q, good.q_starts, good.pages()});
}

TEST(SequencesError, ScalesOfAnotherShape) {
  const Good good;
  const Tensor scales(DType::f32, {5, 4, 2});
  PagedKeys keys = good.pages();
  keys.k_scales = scales;
  good.expect_pages(
      keys,
      "forward: k_scales holds f32 of shape [5, 4, 2]; it must be f32 of shape [5, 2, 4] "
      "or [5, 2]");
}

TEST(SequencesError, ScalesThatAreNotFinite) {
  for (const float scale : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    Good good;
    good.scales.at<float>({1, 1, 2}) = scale;
    PagedKeys keys = good.pages();
    keys.v_scales = good.scales;
    good.expect_pages(
        keys,
        "forward: v_scales of sequence 1, head 1 holds a number that is not finite, among "
        "tokens 0 to 3");
  }
  // Tokens that no sequence has may have any.
  Good good;
  good.scales.at<float>({4, 0, 3}) = std::nanf("");
  PagedKeys keys = good.pages();
  keys.k_scales = good.scales;
  (void)good.attention.forward({good.q, good.q_starts, keys});
}

TEST(SequencesError, GradientsOfPages) {
  const Good good;
  const Tensor out(DType::f32, {3, 4, 8}), lse(DType::f32, {3, 4});
  expect_error(
      [&] {
        (void)good.attention.backward({good.q, good.q_starts, good.pages()}, {out, lse}, out);
      },
      "backward: keys lie in pages; gradients need packed keys (treadle::PackedKeys)");
}

TEST(SequencesError, ResultsOfAnotherShape) {
  const Good good;
  Tensor out(DType::f32, {3, 4, 7});
  expect_error(
      [&] { good.attention.forward_into({out.view(), std::nullopt, std::nullopt}, good.packed()); },
      "forward: out has shape [3, 4, 7]; it must be [3, 4, 8]");
}

}  // namespace
}  // namespace treadle
