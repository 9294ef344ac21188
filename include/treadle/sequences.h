// Sequences of different lengths in one call: queries packed, keys packed or in pages.
//
//   Tensor q(DType::f32, {6, 8, 64});                  // [all queries, heads, dim]
//   Tensor k(DType::f32, {90, 8, 64}), v(DType::f32, {90, 8, 64});
//   std::vector<std::int32_t> q_starts{0, 1, 6}, k_starts{0, 40, 90};
//   Sequences two{q, View(q_starts.data(), {3}), PackedKeys{k, v, View(k_starts.data(), {3})}};
//   Forward next = compile(options).forward(two);      // out is [all queries, heads, value dim]
//
// Sequence s has the queries from q_starts[s] up to q_starts[s + 1]. They are the last of its
// positions: with 50 keys and 5 queries mods see q = 45 .. 49. So one mask serves training (as many
// queries as keys), prompts in chunks and single tokens, all of which may be in one call. Where
// queries stand elsewhere, as in cross-attention, Call::q_offsets says so for each sequence. b is the
// number of the sequence, kv counts from its first key.
//
// A sequence has the same bits alone, packed, in pages, shared with others or in any batch.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "treadle/view.h"

namespace treadle {

// Keys of all sequences, contiguous.
struct PackedKeys {
  ConstView k, v;    // [all keys, key heads, dim], [all keys, key heads, value dim]
  ConstView starts;  // [sequences + 1], i32 or i64: 0 first, the number of all keys last
};

// Which axis of a pool counts the tokens of a page.
enum class PageOrder : std::uint8_t {
  heads_first,   // [pages, key heads, page size, dim]
  tokens_first,  // [pages, page size, key heads, dim]
};

// Keys in pages of a pool that the caller owns: those of sequence s are in pages table[s, 0],
// table[s, 1], ..., page after page. Sequences may share pages; where several begin with the same
// ones, these are read once for all of them. The last strides of pools are 1.
struct PagedKeys {
  ConstView k, v;  // pools
  ConstView
      table;  // [sequences, pages of the longest], i32; entries behind a sequence mean nothing
  ConstView lengths;  // [sequences], i32 or i64: keys of each
  PageOrder order = PageOrder::heads_first;
  // f32, what rows of the pool are multiplied with, such as those of 8 bits: a scale for each token and
  // head ([pages, key heads, page size], or [pages, page size, key heads] if tokens come first) or for
  // each page and head ([pages, key heads]). A key is then f32(element) * scale, rounded once.
  std::optional<ConstView> k_scales = {}, v_scales = {};
};

struct Sequences {
  ConstView q;         // [all queries, heads, dim]
  ConstView q_starts;  // [sequences + 1], i32 or i64
  std::variant<PackedKeys, PagedKeys> keys;
};

}  // namespace treadle
