// The patterns of the Sparse Transformer (openai/sparse_attention, openai/blocksparse): as masks
// over positions, and as the block layouts that the original runs.
//
//   options.mask = patterns::local({.window = 128});
//   options.mask = patterns::local({.window = 128}) | patterns::strided({.stride = 128});
//   BlockLayout layout = patterns::fixed_layout({.window = 128}, 1024, {.size = 32, .heads = 8});
//
// The second is the paper's figure 3b in one head. Mask and layout of a pattern agree pair by pair;
// the layout of strided() does so after its permutation. Parameters that make no sense throw
// treadle::Error.
//
// For code that comes from the original: names and parameters are its own. Other masks are in
// treadle/patterns.h; all() is mods::causal(), local() is sliding_window() without sinks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "treadle/api.h"
#include "treadle/block_layout.h"
#include "treadle/capture.h"
#include "treadle/mod.h"

namespace treadle::patterns {

// How a layout is cut. The length must be a multiple of the size; BlockLayout::check() says which
// sizes blocksparse has.
struct Blocks {
  std::int64_t size = 32;  // positions
  std::int64_t heads = 1;  // of the queries
};

// ---- all: kv <= q ----

TREADLE_API MaskMod all();
TREADLE_API BlockLayout all_layout(std::int64_t length, const Blocks& blocks);

// ---- local: kv <= q && q - kv < window, the `window` latest keys ----

struct Local {
  std::int64_t window = 0;  // in a layout: a multiple of the block size
};
TREADLE_API MaskMod local(const Local& pattern);
TREADLE_API BlockLayout local_layout(const Local& pattern, std::int64_t length,
                                     const Blocks& blocks);

// ---- strided: kv <= q && (q - kv) % stride == 0, every stride-th key ----

struct Strided {
  std::int64_t stride = 0;
};
TREADLE_API MaskMod strided(const Strided& pattern);

// Positions ordered by their residue: p goes to (p % stride) * (length / stride) + p / stride. What
// strided() sees is then a run of neighbours. Works on numbers and on traced indices.
class TREADLE_API StridedOrder {
 public:
  // The length must be a multiple of the stride.
  StridedOrder(std::int64_t length, std::int64_t stride);

  [[nodiscard]] std::int64_t to_new(std::int64_t old_position) const;
  [[nodiscard]] std::int64_t to_old(std::int64_t new_position) const;
  [[nodiscard]] Index to_new(const Index& old_position) const;
  [[nodiscard]] Index to_old(const Index& new_position) const;

  // to_new and to_old of 0, 1, ..., length - 1.
  [[nodiscard]] std::vector<std::int64_t> all_to_new() const;
  [[nodiscard]] std::vector<std::int64_t> all_to_old() const;

 private:
  std::int64_t length_, stride_;
};

// Over positions in their new order. length / stride must be a multiple of the block size.
TREADLE_API BlockLayout strided_layout(const Strided& pattern, std::int64_t length,
                                       const Blocks& blocks);

// ---- fixed: windows side by side, each closed by columns that everybody later sees ----
//
// With w = window rounded down to whole blocks and c = vertsize * size:
//   kv <= q && (kv // w == q // w || (w - 1 - kv % w) // c == h % num_verts)
// so heads take turns in which columns of a window they see, counted from its end.

struct Fixed {
  std::int64_t window = 0;
  std::int64_t num_verts = 4;  // groups of columns; the heads must be a multiple of it
  std::int64_t vertsize = 1;   // blocks per group; must divide the blocks of a window
};
TREADLE_API MaskMod fixed(const Fixed& pattern, const Blocks& blocks);
TREADLE_API BlockLayout fixed_layout(const Fixed& pattern, std::int64_t length,
                                     const Blocks& blocks);

// ---- convolution: a query pixel sees the pixels under a filter ----
//
// An image of height x width pixels, row by row, and a smaller one of height/stride x width/stride.
// In conv the small image queries the large one, in deconv the large one queries the small one. A
// small pixel (y, x) covers, in rows,
//   y * stride - pad, ..., y * stride - pad + filter_height - 1
// with the least padding that gives as many small rows as there are, and columns likewise. Its own
// place is (y * stride, x * stride): autoregressive, nobody sees a pixel whose place comes later,
// row by row, than its own.

struct Conv {
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t filter_height = 1;  // counts as 1 if height is 1
  std::int64_t filter_width = 1;   // an even filter needs a stride of at least 2
  std::int64_t stride = 1;
  bool autoregressive = true;
};
TREADLE_API MaskMod conv(const Conv& pattern);
TREADLE_API MaskMod deconv(const Conv& pattern);
TREADLE_API BlockLayout conv_layout(const Conv& pattern, const Blocks& blocks);
TREADLE_API BlockLayout deconv_layout(const Conv& pattern, const Blocks& blocks);

// ---- a prefix that is seen as a whole ----

// mask && (kv < key || kv <= q): only removes. The key is an integer scalar that may change from
// call to call; a call with one that is not in 0 ... keys - 1 fails.
TREADLE_API MaskMod autoregress_at_key(const MaskMod& mask, const Capture& key, std::int64_t keys);

// The same over a layout, which must have a mask.
TREADLE_API MaskMod autoregress_at_key(const BlockLayout& layout, const Capture& key);

// ---- the original's way to ask: a mode by name, and what the mode needs ----

struct SparseAttention {
  std::string attn_mode = "all";  // all, local, strided or fixed
  std::int64_t n_ctx = 0;
  std::int64_t heads = 1;
  std::int64_t blocksize = 32;
  std::optional<std::int64_t> local_attn_ctx = {};  // local, strided, fixed
  std::optional<std::int64_t> num_verts = {};       // fixed
  std::optional<std::int64_t> vertsize = {};        // fixed
};
TREADLE_API MaskMod sparse_attention(const SparseAttention& how);
TREADLE_API BlockLayout sparse_attention_layout(const SparseAttention& how);

}  // namespace treadle::patterns
