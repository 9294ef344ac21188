// What the Sparse Transformer's patterns refuse: whatever the original asserts, and what it
// stumbles over.
#include <gtest/gtest.h>

#include "expect_error.h"
#include "treadle/sparse_transformer.h"

namespace treadle::patterns {
namespace {

TEST(SparseTransformerError, Local) {
  EXPECT_ERROR(local({}), "local: the window is 0; it must be at least 1");
  EXPECT_ERROR(local_layout({.window = 12}, 64, {.size = 8}),
               "local_layout: the window is 12, the block size 8; 12 is not a multiple of 8");
  EXPECT_ERROR(local_layout({.window = 0}, 64, {.size = 8}),
               "local_layout: the window is 0; it must be at least 1");
}

TEST(SparseTransformerError, Strided) {
  EXPECT_ERROR(strided({}), "strided: the stride is 0; it must be at least 1");
  EXPECT_ERROR(
      strided_layout({.stride = 16}, 64, {.size = 8}),
      "strided_layout: the length / stride is 4, the block size 8; 4 is not a multiple of 8");
  EXPECT_ERROR(strided_layout({.stride = 128}, 64, {.size = 8}),
               "strided_layout: the length is 64, the stride 128; 64 is not a multiple of 128");
  EXPECT_ERROR(strided_layout({.stride = 3}, 64, {.size = 8}),
               "strided_layout: the length is 64, the stride 3; 64 is not a multiple of 3");
  EXPECT_ERROR(StridedOrder(10, 4),
               "strided order: the length is 10, the stride 4; 10 is not a multiple of 4");
  EXPECT_ERROR(StridedOrder(10, 0), "strided order: the stride is 0; it must be at least 1");
  EXPECT_ERROR(StridedOrder(8, 4).to_new(8), "strided order: the position is 8; the length is 8");
  EXPECT_ERROR(StridedOrder(8, 4).to_old(-1), "strided order: the position is -1; the length is 8");
}

TEST(SparseTransformerError, Fixed) {
  const auto layout = [](const Fixed& pattern, std::int64_t heads) {
    return fixed_layout(pattern, 64, {.size = 8, .heads = heads});
  };
  EXPECT_ERROR(layout({.window = 32, .num_verts = 4}, 6),
               "fixed_layout: the number of heads is 6, the num_verts 4; 6 is not a multiple of 4");
  EXPECT_ERROR(layout({.window = 32, .num_verts = 1, .vertsize = 5}, 4),
               "fixed_layout: vertsize is 5; a window of 32 has 4 blocks of 8, vertsize must be at "
               "most that");
  EXPECT_ERROR(layout({.window = 32, .num_verts = 1, .vertsize = 3}, 4),
               "fixed_layout: the number of blocks in a window is 4, the vertsize 3; 4 is not a "
               "multiple of 3");
  EXPECT_ERROR(layout({.window = 32, .num_verts = 4, .vertsize = 2}, 4),
               "fixed_layout: num_verts is 4; 4 blocks in a window make 2 groups of 2, num_verts "
               "must be at most that");
  EXPECT_ERROR(layout({.window = 32, .num_verts = 0}, 4),
               "fixed_layout: the num_verts is 0; it must be at least 1");
  EXPECT_ERROR(layout({.window = 32, .vertsize = 0}, 4),
               "fixed_layout: the vertsize is 0; it must be at least 1");
  EXPECT_ERROR(layout({}, 4), "fixed_layout: the window is 0; it must be at least 1");
  // A window of less than a block has no columns.
  EXPECT_ERROR(
      fixed({.window = 4}, {.size = 8, .heads = 4}),
      "fixed: vertsize is 1; a window of 4 has 0 blocks of 8, vertsize must be at most that");
}

TEST(SparseTransformerError, Blocks) {
  EXPECT_ERROR(all_layout(20, {.size = 8}),
               "all_layout: the length is 20, the block size 8; 20 is not a multiple of 8");
  EXPECT_ERROR(all_layout(-8, {.size = 8}), "all_layout: the length is -8; it must be at least 0");
  EXPECT_ERROR(all_layout(16, {.size = 0}),
               "all_layout: the block size is 0; it must be at least 1");
  EXPECT_ERROR(all_layout(16, {.size = 8, .heads = 0}),
               "all_layout: the number of heads is 0; it must be at least 1");
  EXPECT_ERROR(all_layout(16, {.size = 4}).check(),
               "block layout: blocks have 4 queries and keys; it must be 8, 16, 32 or 64");
}

TEST(SparseTransformerError, Names) {
  EXPECT_ERROR(sparse_attention({.attn_mode = "dense"}),
               "sparse_attention: attn_mode is \"dense\"; it must be all, local, strided or fixed");
  EXPECT_ERROR(sparse_attention_layout({.attn_mode = "", .n_ctx = 64}),
               "sparse_attention: attn_mode is \"\"; it must be all, local, strided or fixed");
  EXPECT_ERROR(sparse_attention({.attn_mode = "local"}),
               "sparse_attention: attn_mode \"local\" needs local_attn_ctx, which is not given");
  EXPECT_ERROR(sparse_attention_layout({.attn_mode = "strided", .n_ctx = 64}),
               "sparse_attention: attn_mode \"strided\" needs local_attn_ctx, which is not given");
  EXPECT_ERROR(sparse_attention_layout({.attn_mode = "fixed", .n_ctx = 64, .local_attn_ctx = 32}),
               "sparse_attention: attn_mode \"fixed\" needs num_verts, which is not given");
  EXPECT_ERROR(sparse_attention({.attn_mode = "fixed", .local_attn_ctx = 32, .num_verts = 1}),
               "sparse_attention: attn_mode \"fixed\" needs vertsize, which is not given");
}

TEST(SparseTransformerError, Conv) {
  EXPECT_ERROR(conv({.width = 15, .stride = 2}),
               "conv: the width is 15, the stride 2; 15 is not a multiple of 2");
  EXPECT_ERROR(deconv({.height = 3, .width = 16, .stride = 2}),
               "deconv: the height is 3, the stride 2; 3 is not a multiple of 2");
  EXPECT_ERROR(conv_layout({.width = 16, .filter_width = 4}, {.size = 8}),
               "conv_layout: the filter width is 4, the stride 1; an even filter needs a stride of "
               "at least 2");
  EXPECT_ERROR(deconv_layout({.height = 4, .width = 4, .filter_height = 2}, {.size = 8}),
               "deconv_layout: the filter height is 2, the stride 1; an even filter needs a stride "
               "of at least 2");
  EXPECT_ERROR(
      conv_layout({.width = 16, .stride = 4}, {.size = 8}),
      "conv_layout: the number of query pixels is 4, the block size 8; 4 is not a multiple "
      "of 8");
  EXPECT_ERROR(
      deconv_layout({.width = 16, .stride = 4}, {.size = 8}),
      "deconv_layout: the number of key pixels is 4, the block size 8; 4 is not a multiple "
      "of 8");
  EXPECT_ERROR(conv({.width = 0}), "conv: the width is 0; it must be at least 1");
  EXPECT_ERROR(conv({.width = 4, .filter_width = 0}),
               "conv: the filter width is 0; it must be at least 1");
  EXPECT_ERROR(conv({.width = 4, .stride = 0}), "conv: the stride is 0; it must be at least 1");
}

}  // namespace
}  // namespace treadle::patterns
