// The masks of the Sparse Transformer's patterns against their block layouts, pair by pair.
#include <gtest/gtest.h>

#include "mask_picture.h"
#include "treadle/sparse_transformer.h"

namespace treadle::patterns {
namespace {

using test::pairs_of;
using test::picture;

void expect_agreement(const MaskMod& mask, const BlockLayout& layout) {
  const std::int64_t length = layout.query_blocks * layout.block_size;
  for (std::int64_t h = 0; h < layout.heads; ++h) {
    ASSERT_EQ(picture(mask, {.queries = length, .keys = length, .h = h}),
              pairs_of(layout, layout.lut_heads == 1 ? 0 : h))
        << "length " << length << " size " << layout.block_size << " head " << h;
  }
}

TEST(SparseTransformerAgreement, AllAndLocal) {
  for (const std::int64_t size : {1, 2, 3, 4, 8}) {
    for (const std::int64_t count : {0, 1, 2, 5, 8}) {
      const Blocks blocks{.size = size};
      const std::int64_t length = size * count;
      expect_agreement(all(), all_layout(length, blocks));
      for (const std::int64_t window : {1, 2, 3, 9}) {
        expect_agreement(local({.window = window * size}),
                         local_layout({.window = window * size}, length, blocks));
      }
    }
  }
}

TEST(SparseTransformerAgreement, StridedInTheNewOrder) {
  int tried = 0;
  for (const std::int64_t size : {1, 2, 4, 8, 16}) {
    for (const std::int64_t length : {16, 32, 48, 64}) {
      for (const std::int64_t stride : {1, 2, 3, 4, 8}) {
        if (length % stride != 0 || length / stride % size != 0) continue;
        const StridedOrder order(length, stride);
        const MaskMod mask = strided({.stride = stride});
        const MaskMod permuted = [=](Index b, Index h, Index q, Index kv) {
          return mask(b, h, order.to_old(q), order.to_old(kv));
        };
        expect_agreement(permuted, strided_layout({.stride = stride}, length, {.size = size}));
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 40);
}

TEST(SparseTransformerAgreement, Fixed) {
  int tried = 0;
  for (const std::int64_t size : {1, 2, 4}) {
    for (const std::int64_t window : {1, 2, 3, 4, 6}) {
      for (const std::int64_t vertsize : {1, 2, 3}) {
        for (const std::int64_t num_verts : {1, 2, 3, 4}) {
          if (window % vertsize != 0 || num_verts > window / vertsize) continue;
          // A window that is not whole blocks counts as the blocks that fit.
          const Fixed pattern{
              .window = window * size + size / 2, .num_verts = num_verts, .vertsize = vertsize};
          const Blocks blocks{.size = size, .heads = 2 * num_verts};
          expect_agreement(fixed(pattern, blocks), fixed_layout(pattern, 13 * size, blocks));
          ++tried;
        }
      }
    }
  }
  EXPECT_GT(tried, 60);
}

TEST(SparseTransformerAgreement, ModesByName) {
  const SparseAttention how{.attn_mode = "fixed",
                            .n_ctx = 64,
                            .heads = 4,
                            .blocksize = 8,
                            .local_attn_ctx = 32,
                            .num_verts = 4,
                            .vertsize = 1};
  for (const char* mode : {"all", "local", "fixed"}) {
    SparseAttention named = how;
    named.attn_mode = mode;
    expect_agreement(sparse_attention(named), sparse_attention_layout(named));
  }
  SparseAttention named = how;
  named.attn_mode = "strided";
  named.local_attn_ctx = 4;
  EXPECT_EQ(test::traced_mask(sparse_attention(named)).text(), "q >= kv && (q - kv) % 4 == 0");
  EXPECT_EQ(sparse_attention_layout(named).present,
            strided_layout({.stride = 4}, 64, {.size = 8}).present);
}

}  // namespace
}  // namespace treadle::patterns
