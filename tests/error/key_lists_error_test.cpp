// Lists of keys that make no sense, one mistake per expectation.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "expect_error.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

// Three blocks of up to 16 queries, two key heads for four heads.
class KeyListErrors : public testing::Test {
 protected:
  Tensor q{DType::f32, {2, 4, 40, 8}};
  Tensor k{DType::f32, {2, 2, 50, 8}};
  Tensor indices{DType::i32, {1, 1, 3, 2}};
  Tensor counts{DType::i32, {1, 1, 3}};
  Options options;

  KeyListErrors() {
    for (std::size_t i = 0; i < 6; ++i)
      indices.data<std::int32_t>()[i] = static_cast<std::int32_t>(i);
    for (std::int32_t& count : counts.data<std::int32_t>()) count = 2;
    options.mask = mods::causal();
  }

  [[nodiscard]] Layout layout(const KeyLists& lists) const {
    return compile(options).layout(lists, {q, k, k});
  }
  void expect_refused(const KeyLists& lists, const std::string& message) const {
    EXPECT_ERROR(layout(lists), "layout: " + message);
  }
};

TEST_F(KeyListErrors, BlocksOfNothing) {
  expect_refused({0, 1, indices}, "the query block is 0; it must be at least 1");
  expect_refused({16, -2, indices}, "the key block is -2; it must be at least 1");
}

TEST_F(KeyListErrors, ShapesThatDoNotFit) {
  expect_refused(
      {8, 1, indices},
      "indices has shape [1, 1, 3, 2]; it must be [2, 4, 5, 2], where batch and heads may "
      "also be 1, and heads the 2 key heads");
  const Tensor flat(DType::i32, {3, 2});
  expect_refused({16, 1, flat},
                 "indices has shape [3, 2]; it must be [batch, heads, query blocks, longest list]");
  const Tensor three(DType::i32, {1, 3, 3, 2});
  expect_refused(
      {16, 1, three},
      "indices has shape [1, 3, 3, 2]; it must be [2, 4, 3, 2], where batch and heads may "
      "also be 1, and heads the 2 key heads");
  const Tensor four(DType::i32, {1, 1, 4});
  expect_refused({16, 1, indices, four},
                 "the array of counts of indices has shape [1, 1, 4]; it must be [2, 4, 3], where "
                 "batch and heads may also be 1, and heads the 2 key heads");
}

TEST_F(KeyListErrors, ElementsThatAreNoIndices) {
  const Tensor floats(DType::f32, {1, 1, 3, 2});
  expect_refused({16, 1, floats}, "indices holds f32; it must hold i32 or i64");
  const Tensor bytes(DType::u8, {1, 1, 3});
  expect_refused({16, 1, indices, bytes},
                 "the array of counts of indices holds u8; it must hold i32 or i64");
}

TEST_F(KeyListErrors, KeysThatDoNotExist) {
  indices.data<std::int32_t>()[3] = 50;
  expect_refused({16, 1, indices},
                 "indices lists key 50 for batch 0, head 0, query block 1; there are 50 keys");
  indices.data<std::int32_t>()[3] = 7;
  expect_refused(
      {16, 8, indices},
      "indices lists key block 7 for batch 0, head 0, query block 1; 50 keys in blocks of "
      "8 make 7");
  indices.data<std::int32_t>()[5] = -1;
  indices.data<std::int32_t>()[3] = 3;
  expect_refused(
      {16, 1, indices},
      "indices lists key -1 for batch 0, head 0, query block 2; there are 50 keys. Lists "
      "that are filled up need counts");
  expect_refused({16, 1, indices, counts},
                 "indices lists key -1 for batch 0, head 0, query block 2; there are 50 keys");
  counts.data<std::int32_t>()[2] = 1;
  (void)layout({16, 1, indices, counts});  // nobody reads it
}

TEST_F(KeyListErrors, KeysThatAreListedTwice) {
  indices.data<std::int32_t>()[0] = 1;
  expect_refused({16, 1, indices},
                 "indices lists key 1 twice for batch 0, head 0, query block 0; it may be listed "
                 "once");
  expect_refused({16, 2, indices},
                 "indices lists key block 1 twice for batch 0, head 0, query block 0; it may be "
                 "listed once");
}

TEST_F(KeyListErrors, CountsThatDoNotFit) {
  counts.data<std::int32_t>()[1] = 3;
  expect_refused(
      {16, 1, indices, counts},
      "the count of indices is 3 for batch 0, head 0, query block 1; a list holds 0 to 2");
  counts.data<std::int32_t>()[1] = -1;
  expect_refused({16, 1, indices, counts},
                 "the count of indices is -1 for batch 0, head 0, query block 1; a list holds 0 to "
                 "2");
}

// The place is that of the list in the array: here one per batch and key head.
TEST_F(KeyListErrors, NameTheList) {
  Tensor many(DType::i64, {2, 2, 3, 1});
  many.at<std::int64_t>({1, 1, 2, 0}) = 99;
  many.at<std::int64_t>({1, 1, 1, 0}) = 77;  // the first mistake, for any number of threads
  for (int i = 0; i < 20; ++i) {
    expect_refused({16, 1, many},
                   "indices lists key 77 for batch 1, head 1, query block 1; there are 50 keys");
  }
}

TEST_F(KeyListErrors, BlockLists) {
  BlockListViews lists{.query_block = 16,
                       .key_block = 8,
                       .kv_num_blocks = counts,
                       .kv_indices = indices,
                       .full_kv_num_blocks = counts,
                       .full_kv_indices = indices};
  const auto refused = [&](const std::string& message) {
    EXPECT_ERROR(compile(options).layout(lists, {q, k, k}), "layout: " + message);
  };
  refused(
      "kv_indices and full_kv_indices list key block 0 both for batch 0, head 0, query block 0; it "
      "may be listed once");
  lists.full_kv_num_blocks.reset();
  refused("full_kv_indices is given without full_kv_num_blocks; they go together");
  lists.full_kv_indices.reset();
  (void)compile(options).layout(lists, {q, k, k});
  lists.key_block = 16;
  refused(
      "kv_indices lists key block 4 for batch 0, head 0, query block 2; 50 keys in blocks of 16 "
      "make 4");
  lists.key_block = 0;
  refused("the key block is 0; it must be at least 1");
}

TEST_F(KeyListErrors, BlockLayoutsOfOtherLengths) {
  const BlockLayout blocks = patterns::all_layout(32, {.size = 16, .heads = 4});
  EXPECT_ERROR(compile(options).layout(blocks, {q, k, k}),
               "layout: 40 queries in blocks of 16 make 3, the block layout has 2");
}

TEST_F(KeyListErrors, LayoutsOfAnotherMaskAreRefused) {
  const Layout listed = layout({16, 1, indices});
  options.mask = mods::window(7);
  EXPECT_ERROR(compile(options).forward({q, k, k}, {.layout = listed}),
               "forward: the layout was made for another mask; Attention::layout makes the one it "
               "needs");
}

TEST_F(KeyListErrors, OnTheWayOut) {
  EXPECT_ERROR(Layout().block_lists(),
               "block_lists: the layout is empty; Attention::layout makes one");
  EXPECT_ERROR(compile(options).block_lists({0, 4}, {q, k, k}),
               "block_lists: the query block is 0; it must be at least 1");
  EXPECT_ERROR(compile(options).block_layout(12, {q, k, k}),
               "block layout: blocks have 12 queries and keys; it must be 8, 16, 32 or 64");
  EXPECT_ERROR(layout({16, 1, indices}).block_lists({16, 16}),
               "block_lists: batch 0, head 0, query block 0 of the layout lists keys 0 up to 2; "
               "blocks of 16 keys cannot say so");
  options.mask =
      mods::padding(Capture("lengths", ConstView(counts.data<std::int32_t>().data(), {3})));
  EXPECT_ERROR(compile(options).block_layout(16, {q, k, k}),
               "block_layout: what is visible depends on the batch; a block layout is for all");
}

}  // namespace
}  // namespace treadle
