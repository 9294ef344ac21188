// The Sparse Transformer's attention, by the names and arguments of openai/sparse_attention, with
// gradients. q, k and v are [batch, time, heads * dim]; heads are read where they are, whatever the
// strides.
//
//   using namespace treadle::sparse_transformer;
//   Tensor out = blocksparse_attention(
//       {q, k, v}, {.heads = 8, .attn_mode = "strided", .local_attn_ctx = 128}).out;
//
//   SparseAttention attend = blocksparse_attention(
//       {.heads = 8, .attn_mode = "fixed", .local_attn_ctx = 128, .num_verts = 4, .vertsize = 1});
//   Forward y = attend.forward({q, k, v}, {.lse = true});             // made once, called often,
//   Backward g = attend.backward({q, k, v}, {y.out, y.lse}, dout);    // and trained
//
// Modes are those of treadle/sparse_transformer.h, which also has them as masks and as layouts of
// blocks. Arguments and tensors that break a rule throw treadle::Error.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "treadle/api.h"
#include "treadle/attention.h"
#include "treadle/mod.h"
#include "treadle/view.h"

namespace treadle::sparse_transformer {

// ---- what is asked for ----

// Modes that know no blocks, on any length.
struct DenseArguments {
  std::int64_t heads = 0;                           // has to be given
  std::string attn_mode = "all";                    // all, local or strided
  std::optional<std::int64_t> local_attn_ctx = {};  // local, strided
  // Nothing but q, k and v is kept for backward, which runs the forward again: Saved may be empty.
  // The bits are the same.
  bool recompute = false;
};

// Whole blocks. They change no result; they say which lengths and numbers are taken:
//   all       the time is a multiple of blocksize, as in all modes
//   local     local_attn_ctx is one, too
//   strided   the time is a multiple of local_attn_ctx, and time / local_attn_ctx of blocksize
//   fixed     heads is a multiple of num_verts, and local_attn_ctx holds num_verts or more groups of
//             vertsize blocks, and no part of one
struct BlocksparseArguments {
  std::int64_t heads = 0;                           // has to be given
  std::string attn_mode = "all";                    // all, local, strided or fixed
  std::optional<std::int64_t> local_attn_ctx = {};  // local, strided, fixed
  std::int64_t blocksize = 32;                      // positions
  std::optional<std::int64_t> num_verts = {};       // fixed
  std::optional<std::int64_t> vertsize = {};        // fixed
  bool recompute = false;                           // as above
};

// ---- what is made of it ----

// treadle::Attention on [batch, time, heads * dim], the shape of out, dout, dq, dk and dv, too; lse
// and max are [batch, heads, time]. All calls are const and may run at the same time.
//
// Same arguments, same function: what was compiled for some serves all that mean the same, and so
// does what was found out about a length, unless Call::layout brings it.
class TREADLE_API SparseAttention {
 public:
  // As those of treadle::Attention.
  [[nodiscard]] Forward forward(const Inputs& inputs, const Call& call = {}) const;
  void forward_into(const ForwardViews& results, const Inputs& inputs, const Call& call = {}) const;

  // As those of treadle::Attention.
  [[nodiscard]] Backward backward(const Inputs& inputs, const Saved& saved, const ConstView& dout,
                                  const std::optional<ConstView>& dlse = std::nullopt,
                                  const Call& call = {}) const;
  void backward_into(const BackwardViews& results, const Inputs& inputs, const Saved& saved,
                     const ConstView& dout, const std::optional<ConstView>& dlse = std::nullopt,
                     const Call& call = {}) const;

  // Which pairs are visible, to be combined with other masks.
  [[nodiscard]] MaskMod mask() const;
  // What runs, on [batch, heads, time, dim]: the same object for the same arguments.
  [[nodiscard]] const Attention& attention() const;

  struct Made;  // internal
  explicit SparseAttention(std::shared_ptr<const Made> made) : made_(std::move(made)) {}

 private:
  std::shared_ptr<const Made> made_;
};

// Compiled once for the same arguments. Throws treadle::Error for those that break a rule.
TREADLE_API SparseAttention attention_impl(const DenseArguments& how);
TREADLE_API SparseAttention blocksparse_attention(const BlocksparseArguments& how);

// In one call.
TREADLE_API Forward attention_impl(const Inputs& inputs, const DenseArguments& how,
                                   const Call& call = {});
TREADLE_API Forward blocksparse_attention(const Inputs& inputs, const BlocksparseArguments& how,
                                          const Call& call = {});

}  // namespace treadle::sparse_transformer
