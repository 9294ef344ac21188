// Chooses a Sparse Transformer pattern by the original's parameters, and adds its prefix.
//
// In: a mode by name and what the mode needs. Out: a mask or a block layout.
#include "base/error.h"
#include "treadle/sparse_transformer.h"

namespace treadle::patterns {
namespace {

using base::fail;

std::int64_t needed(const SparseAttention& how, std::string_view name,
                    const std::optional<std::int64_t>& value) {
  if (!value) {
    fail("sparse_attention: attn_mode \"{}\" needs {}, which is not given", how.attn_mode, name);
  }
  return *value;
}

[[noreturn]] void fail_mode(const SparseAttention& how) {
  fail("sparse_attention: attn_mode is \"{}\"; it must be all, local, strided or fixed",
       how.attn_mode);
}

Local local_of(const SparseAttention& how) {
  return {.window = needed(how, "local_attn_ctx", how.local_attn_ctx)};
}

Strided strided_of(const SparseAttention& how) {
  return {.stride = needed(how, "local_attn_ctx", how.local_attn_ctx)};
}

Fixed fixed_of(const SparseAttention& how) {
  return {.window = needed(how, "local_attn_ctx", how.local_attn_ctx),
          .num_verts = needed(how, "num_verts", how.num_verts),
          .vertsize = needed(how, "vertsize", how.vertsize)};
}

}  // namespace

MaskMod sparse_attention(const SparseAttention& how) {
  if (how.attn_mode == "all") return all();
  if (how.attn_mode == "local") return local(local_of(how));
  if (how.attn_mode == "strided") return strided(strided_of(how));
  if (how.attn_mode == "fixed") {
    return fixed(fixed_of(how), {.size = how.blocksize, .heads = how.heads});
  }
  fail_mode(how);
}

BlockLayout sparse_attention_layout(const SparseAttention& how) {
  const Blocks blocks{.size = how.blocksize, .heads = how.heads};
  if (how.attn_mode == "all") return all_layout(how.n_ctx, blocks);
  if (how.attn_mode == "local") return local_layout(local_of(how), how.n_ctx, blocks);
  if (how.attn_mode == "strided") return strided_layout(strided_of(how), how.n_ctx, blocks);
  if (how.attn_mode == "fixed") return fixed_layout(fixed_of(how), how.n_ctx, blocks);
  fail_mode(how);
}

MaskMod autoregress_at_key(const MaskMod& mask, const Capture& key, std::int64_t keys) {
  if (key.view().rank() != 0 || !is_integer(key.view().dtype())) {
    fail("autoregress_at_key: the key is {} of shape {}; it must be an integer scalar",
         name_of(key.view().dtype()), to_string(key.view().shape()));
  }
  if (keys < 1) fail("autoregress_at_key: there are {} keys; it must be at least 1", keys);
  // One byte that is there for each key in range and for no other: reading it at `key` is the
  // check, also of a value that is bound later. It has a name because the error shows it.
  static const bool yes = true;
  const Capture in_range("autoregress_at_key", ConstView(&yes, {keys}, {0}));
  return [=](Index b, Index h, Index q, Index kv) {
    const Value at = key();
    return in_range(at) && mask(b, h, q, kv) && (kv < at || q >= kv);
  };
}

MaskMod autoregress_at_key(const BlockLayout& layout, const Capture& key) {
  if (!layout.mask) {
    fail("autoregress_at_key: the layout has no mask; it must have one to take visibility from");
  }
  return autoregress_at_key(to_mask(layout), key, layout.key_blocks * layout.block_size);
}

}  // namespace treadle::patterns
