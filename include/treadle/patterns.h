// Masks from a few numbers: parameters are checked, tables are made and kept. docs/patterns.md
// has a picture of every one.
//
//   options.mask = patterns::sliding_window({.window = 1024, .sinks = 4});
//   options.mask = patterns::documents({.lengths = {100, 28, 128}}) & mods::causal();
//
// They combine with &, | and ! like all masks. A table (documents, trees, random blocks) lives as
// long as the mask. Parameters that make no sense throw treadle::Error.
//
// The one-liners, whose tables are captures of the caller, are in treadle/mods.h. The patterns of
// the Sparse Transformer are in treadle/sparse_transformer.h, which this header includes.
#pragma once

#include <cstdint>
#include <vector>

#include "treadle/api.h"
#include "treadle/capture.h"
#include "treadle/mod.h"
#include "treadle/sparse_transformer.h"

namespace treadle::patterns {

// ---- windows ----

// The latest keys and, always, the first ones: kv <= q && (q - kv < window || kv < sinks)
struct SlidingWindow {
  std::int64_t window = 0;  // keys, the query's own position included
  std::int64_t sinks = 0;   // keys at the start that stay visible
};
TREADLE_API MaskMod sliding_window(const SlidingWindow& pattern);

// Every dilation-th key nearby: |q - kv| < window * dilation && (q - kv) % dilation == 0. With
// mods::causal(): `window` keys, the query's own position included.
struct DilatedWindow {
  std::int64_t window = 0;    // keys, to each side
  std::int64_t dilation = 1;  // every so many
};
TREADLE_API MaskMod dilated_window(const DilatedWindow& pattern);

// A window, and tokens that see and are seen by everybody:
//   |q - kv| <= reach || global[q] || global[kv]
struct Longformer {
  std::int64_t reach = 0;  // to each side
  Capture global;          // bools, [length] or [batch, length]; may change from call to call
};
TREADLE_API MaskMod longformer(const Longformer& pattern);

// Blocks: a window, the first ones for and to everybody, and some at random. With block numbers
// Q = q // block_size and K = kv // block_size:
//   |Q - K| <= reach || Q < global || K < global || K is one of the random blocks of (h, Q)
// A row's random blocks are chosen among those it would not see otherwise, all if there are too
// few. The same seed gives the same blocks on every machine. The window is bidirectional, as in
// BigBird; & mods::causal() for the other kind.
struct BigBird {
  std::int64_t length = 0;       // a multiple of block_size
  std::int64_t heads = 1;        // each has random blocks of its own
  std::int64_t block_size = 64;  // positions
  std::int64_t reach = 1;        // blocks to each side
  std::int64_t global = 1;       // blocks at the start
  std::int64_t random = 3;       // blocks per row
  std::uint64_t seed = 0;        // of the random blocks
};
TREADLE_API MaskMod bigbird(const BigBird& pattern);

// Neighbourhood attention on a line, a grid or a volume, as in NATTEN. q and kv number the cells
// row by row (the last axis fastest). A query sees the `window` cells around it that lie a multiple
// of `dilation` away, along each axis; near a border the window is shifted inwards, so that
// everyone sees as many. An even window reaches one further to the left. Along a causal axis it
// ends at the query itself, and is cut, not shifted. With i and j the numbers of the two cells
// among those with their residue:
//   start <= j < start + window,  start = clamp(i - window // 2, 0, cells - window)
//   causal: i - window < j <= i
struct Axis {
  std::int64_t length = 0;    // cells
  std::int64_t window = 0;    // window * dilation is at most length
  std::int64_t dilation = 1;  // every so many
  bool causal = false;        // whether nobody sees what comes later
};
TREADLE_API MaskMod neighborhood(const std::vector<Axis>& axes);

// ---- several sequences in one ----

// Blocks of one size: q // size == kv // size
struct BlockDiagonal {
  std::int64_t size = 0;  // positions
};
TREADLE_API MaskMod block_diagonal(const BlockDiagonal& pattern);

// Documents of these lengths, one after the other: id[q] == id[kv]. Positions after the last one
// fail the call. mods::document takes the ids.
struct Documents {
  std::vector<std::int64_t> lengths = {};  // of each, in their order
};
TREADLE_API MaskMod documents(const Documents& pattern);

// Packed sequences whose queries and keys begin at different places, given by cumulative lengths
// (0, then where each ends). Pairs of one sequence see each other as `inner` says, which gets
// positions inside the sequence:
//   id_q[q] == id_k[kv] && inner(b, h, q - start_q[q], kv - start_k[kv])
struct Jagged {
  // Where the queries of a sequence stand among its keys.
  enum class Align {
    first,  // the first query of a sequence stands at its first key
    last    // the last one at its last key, as when decoding with a cache
  };
  std::vector<std::int64_t> query_ends = {};
  std::vector<std::int64_t> key_ends = {};  // empty: as the queries
  MaskMod inner = {};                       // everything sees everything; mods::causal(), ...
  Align align = Align::first;
};
// Throws treadle::Error for ends that do not ascend, or are not as many.
TREADLE_API MaskMod jagged(const Jagged& pattern);

// A prefix that everybody sees, then causal, for each batch: kv < lengths[b] || q >= kv.
// mods::prefix_lm takes the lengths as a capture, which may change from call to call.
struct PrefixLm {
  std::vector<std::int64_t> lengths = {};  // one for each batch entry
};
TREADLE_API MaskMod prefix_lm(const PrefixLm& pattern);

// ---- trees ----

// Drafts of speculative decoding: tree node q sees the context, itself and its ancestors. The first
// `context` keys are the context, key context + i is node i. With the times at which a depth-first
// walk enters and leaves a node:
//   kv < context || (enter[kv - context] <= enter[q] && enter[q] < leave[kv - context])
struct Tree {
  std::vector<std::int64_t> parents = {};  // of each node; -1 for a root. Any order.
  Capture context{"", 0};                  // an integer scalar that may change from call to call
};
TREADLE_API MaskMod tree(const Tree& pattern);

}  // namespace treadle::patterns
