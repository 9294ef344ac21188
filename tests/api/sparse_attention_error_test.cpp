// What the Sparse Transformer's attention refuses, word for word.
#include <gtest/gtest.h>

#include "expect_error.h"
#include "treadle/sparse_attention.h"

namespace treadle::sparse_transformer {
namespace {

const BlocksparseArguments fixed{.heads = 4,
                                 .attn_mode = "fixed",
                                 .local_attn_ctx = 16,
                                 .blocksize = 8,
                                 .num_verts = 2,
                                 .vertsize = 1};

template <class Change>
void expect_wrong(const Change& change, const std::string& text) {
  BlocksparseArguments how = fixed;
  change(how);
  EXPECT_ERROR(blocksparse_attention(how), "blocksparse_attention: " + text);
}

TEST(SparseAttentionError, Modes) {
  using How = BlocksparseArguments;
  expect_wrong([](How& how) { how.attn_mode = "diagonal"; },
               "attn_mode is \"diagonal\"; it must be all, local, strided or fixed");
  for (const std::string mode : {"local", "strided", "fixed"}) {
    expect_wrong(
        [&](How& how) {
          how.attn_mode = mode;
          how.local_attn_ctx = {};
        },
        "attn_mode \"" + mode + "\" needs local_attn_ctx, which is not given");
  }
  expect_wrong([](How& how) { how.num_verts = {}; },
               "attn_mode \"fixed\" needs num_verts, which is not given");
  expect_wrong([](How& how) { how.vertsize = {}; },
               "attn_mode \"fixed\" needs vertsize, which is not given");
}

TEST(SparseAttentionError, Numbers) {
  using How = BlocksparseArguments;
  expect_wrong([](How& how) { how.heads = 0; }, "heads is 0; it must be at least 1");
  expect_wrong([](How& how) { how.blocksize = 0; }, "blocksize is 0; it must be at least 1");
  expect_wrong([](How& how) { how.local_attn_ctx = -4; },
               "local_attn_ctx is -4; it must be at least 1");
  expect_wrong([](How& how) { how.num_verts = 0; }, "num_verts is 0; it must be at least 1");
  expect_wrong([](How& how) { how.vertsize = 0; }, "vertsize is 0; it must be at least 1");
  expect_wrong(
      [](How& how) {
        how.attn_mode = "local";
        how.local_attn_ctx = 12;
      },
      "local_attn_ctx is 12, blocksize 8; 12 is not a multiple of 8");
  expect_wrong([](How& how) { how.num_verts = 3; },
               "heads is 4, num_verts 3; 4 is not a multiple of 3");
  expect_wrong(
      [](How& how) { how.vertsize = 3; },
      "vertsize is 3; a local_attn_ctx of 16 has 2 blocks of 8, vertsize must be at most that");
  expect_wrong(
      [](How& how) {
        how.local_attn_ctx = 24;
        how.vertsize = 2;
      },
      "the number of blocks in local_attn_ctx is 3, vertsize 2; 3 is not a multiple of 2");
  expect_wrong([](How& how) { how.num_verts = 4; },
               "num_verts is 4; 2 blocks in a local_attn_ctx of 16 make 2 groups of 1, num_verts "
               "must be at most that");
}

TEST(SparseAttentionError, Lengths) {
  const auto expect = [](const BlocksparseArguments& how, std::int64_t length,
                         const std::string& text) {
    const Tensor x(DType::f32, {1, length, 8});
    EXPECT_ERROR(blocksparse_attention({x, x, x}, how), "blocksparse_attention: " + text);
  };
  const std::string sixty = "the length is 60, blocksize 8; 60 is not a multiple of 8";
  expect({.heads = 4, .attn_mode = "all", .blocksize = 8}, 60, sixty);
  expect({.heads = 4, .attn_mode = "local", .local_attn_ctx = 8, .blocksize = 8}, 60, sixty);
  expect(fixed, 60, sixty);
  const auto strided = [](std::int64_t stride) {
    return BlocksparseArguments{
        .heads = 4, .attn_mode = "strided", .local_attn_ctx = stride, .blocksize = 8};
  };
  expect(strided(16), 64, "length / local_attn_ctx is 4, blocksize 8; 4 is not a multiple of 8");
  expect(strided(128), 64, "the length is 64, local_attn_ctx 128; 64 is not a multiple of 128");
  expect(strided(3), 64, "the length is 64, local_attn_ctx 3; 64 is not a multiple of 3");
}

TEST(SparseAttentionError, WithoutBlocks) {
  EXPECT_ERROR(attention_impl({.heads = 4, .attn_mode = "fixed", .local_attn_ctx = 16}),
               "attention_impl: attn_mode is \"fixed\"; it must be all, local or strided; "
               "blocksparse_attention has it");
  EXPECT_ERROR(attention_impl({.heads = 4, .attn_mode = "diagonal"}),
               "attention_impl: attn_mode is \"diagonal\"; it must be all, local or strided");
  EXPECT_ERROR(attention_impl({.heads = 4, .attn_mode = "local"}),
               "attention_impl: attn_mode \"local\" needs local_attn_ctx, which is not given");
  EXPECT_ERROR(attention_impl({.heads = 4, .attn_mode = "local", .local_attn_ctx = 0}),
               "attention_impl: local_attn_ctx is 0; it must be at least 1");
  EXPECT_ERROR(attention_impl({}), "attention_impl: heads is 0; it must be at least 1");
}

TEST(SparseAttentionError, Tensors) {
  const Tensor x(DType::f32, {2, 64, 8}), flat(DType::f32, {64, 8}), six(DType::f32, {2, 64, 6});
  const Tensor narrow(DType::f32, {2, 64, 4}), brief(DType::f32, {2, 32, 8}),
      one(DType::f32, {1, 64, 8}), wide(DType::f64, {2, 64, 8});
  const SparseAttention dense = attention_impl({.heads = 4});
  const SparseAttention sparse = blocksparse_attention({.heads = 4, .recompute = true});
  const auto expect = [&](const Inputs& inputs, const std::string& text) {
    EXPECT_ERROR(dense.forward(inputs), "attention_impl: " + text);
    EXPECT_ERROR(sparse.forward(inputs), "blocksparse_attention: " + text);
    EXPECT_ERROR(sparse.backward(inputs, {}, x), "blocksparse_attention: " + text);
  };
  expect({x, x, flat}, "v has 2 dimensions; it must have 3: batch, time, heads * dim");
  expect({x, six, x}, "the width of k is 6, heads 4; 6 is not a multiple of 4");
  expect({x, narrow, x}, "q has width 8, k 4; they must be the same");
  expect({x, brief, x}, "q has batch 2 and length 64, k 2 and 32; they must be the same");
  expect({x, x, one}, "q has batch 2 and length 64, v 1 and 64; they must be the same");
  expect({x, x, wide}, "q is f32, v f64; they must be of one type");
}

TEST(SparseAttentionError, TensorsOfBackward) {
  const Tensor x(DType::f32, {2, 64, 8}), six(DType::f32, {2, 64, 6});
  const SparseAttention kept = attention_impl({.heads = 2});
  const Forward y = kept.forward({x, x, x}, {.lse = true});
  EXPECT_ERROR(kept.backward({x, x, x}, {y.out, y.lse}, six),
               "attention_impl: dout has shape [2, 64, 6]; it must be [2, 64, 8]");
  EXPECT_ERROR(kept.backward({x, x, x}, {six, y.lse}, x),
               "attention_impl: saved.out has shape [2, 64, 6]; it must be [2, 64, 8]");
  EXPECT_ERROR(kept.backward({x, x, x}, {y.out, {}}, x),
               "backward: saved.lse is empty; forward returns it when Call::lse is set");
  Tensor small(DType::f32, {2, 64, 6});
  EXPECT_ERROR(kept.forward_into({.out = small, .lse = {}, .max = {}}, {x, x, x}),
               "attention_impl: out has shape [2, 64, 6]; it must be [2, 64, 8]");
}

}  // namespace
}  // namespace treadle::sparse_transformer
