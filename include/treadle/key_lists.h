// Keys chosen from data: top-k tokens or blocks, for each query or block of queries.
//
//   Tensor top(DType::i32, {1, 8, 64, 16});   // for each block of 64 queries, 16 blocks of 64 keys
//   Layout layout = causal.layout(KeyLists{64, 64, top}, {q, k, v});
//   Forward y = causal.forward({q, k, v}, {.layout = layout, .lse = true});
//   Backward g = causal.backward({q, k, v}, {y.out, y.lse}, dout, {}, {.layout = layout});
//
// A pair is visible if its key is listed for its query and the mask shows it. The Layout keeps the
// lists: forward and backward work on listed keys only, and the arrays may change once it is made.
// Queries that share a list run together. A list for each query works, too, but is slow; share each
// list among 16 queries or more.
#pragma once

#include <cstdint>
#include <optional>

#include "treadle/view.h"

namespace treadle {

// Both arrays are i32 or i64, of any strides. Their batch may be 1, their heads 1 or the key heads
// (each list then serves a group of heads). Entry i stands for keys i * key_block up to the next
// block or the end; a list is in any order. What does not exist, is listed twice or counts too many
// throws treadle::Error.
struct KeyLists {
  std::int64_t query_block = 1;  // queries that share a list
  std::int64_t key_block = 1;    // keys that one entry stands for
  ConstView indices;             // [batch, heads, query blocks, longest list]
  // [batch, heads, query blocks]: how many entries of each list count; the rest may be anything.
  std::optional<ConstView> counts = {};  // all of them
};

}  // namespace treadle
