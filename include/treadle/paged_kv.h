// A paged key/value cache over memory of the caller's: which sequence has which pages of the pools.
//
//   Tensor k_pool(DType::bf16, {64, 8, 16, 128}), v_pool(DType::bf16, {64, 8, 16, 128});
//   PagedKV cache(k_pool, v_pool, {.sequences = 8, .pages_per_sequence = 32});
//   const std::int64_t prompt = cache.add();
//   cache.append(prompt, k, v);                       // [tokens, key heads, dim]
//   const std::int64_t other = cache.fork(prompt);    // shares the pages of all these tokens
//   cache.append(other, near_k, near_v);              // copies the last page first, if not full
//   const PagedKV::Batch batch = cache.batch({prompt, other});
//   std::vector<std::int32_t> starts{0, 1, 2};
//   Forward next = causal.forward(Sequences{q, View(starts.data(), {3}), batch.keys});
//
// For engines without a cache of their own; calls take any pools and tables (treadle/sequences.h).
//
// Rows are f64, f32, bf16 or f16. Pools of f64, f32, bf16, f16, e4m3 and e5m2 hold them rounded
// once, to nearest even. With scales, pools of i8, e4m3 and e5m2 are quantised:
//
//     stored = x / scale, to nearest even    |stored| <= most    (i8: 127, e4m3: 448, e5m2: 57344)
//
// where x / scale is computed in f64, and what is larger becomes the largest. A scale is max |x| /
// most, rounded to f32, at least 2^-126 and at most what keeps most * scale finite; it is 1 if all
// x are 0. Scales for each token and head are those of the row. One for a page and head is that of
// the rows that come first: those which the append that begins the page puts into it. It stays, and
// later rows that are larger saturate. Nothing is ever quantised again.
//
// A call that throws an Error, or std::bad_alloc, leaves the cache and the pools as they were. None
// that changes a cache may run at the same time as another of its calls, or as a forward pass that
// reads its pages.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "treadle/api.h"
#include "treadle/sequences.h"
#include "treadle/tensor.h"
#include "treadle/view.h"

namespace treadle {

// Sizes, order and scales of a cache.
struct PagedKVOptions {
  std::int64_t sequences = 0;                // most at a time
  std::int64_t pages_per_sequence = 0;       // most of one
  PageOrder order = PageOrder::heads_first;  // of the pools
  // f32, written by append: a scale for each token and head ([pages, key heads, page size], or
  // [pages, page size, key heads] if tokens come first) or for each page and head ([pages, key
  // heads]). Needed for pools of i8.
  std::optional<View> k_scales = {}, v_scales = {};
  // Scales are the caller's, [pages, key heads] and the same for all pages of a head, since pages
  // go from one sequence to another. They are read, never written; the stride of pages may be 0.
  bool scales_given = false;
};

// One that was moved from may only be assigned to or destroyed.
class TREADLE_API PagedKV {
 public:
  // Pools are [pages, key heads, page size, dim], and [pages, page size, key heads, dim] if tokens
  // come first, where the value dim may be another. What they hold is free to be overwritten; they
  // outlive the cache, and calls with its batches.
  PagedKV(const View& k_pool, const View& v_pool, const PagedKVOptions& options);
  PagedKV(PagedKV&& other) noexcept;
  PagedKV& operator=(PagedKV&& other) noexcept;
  ~PagedKV();

  // An empty sequence. The result is its slot, the first that is not in use.
  std::int64_t add();

  // Rows of a sequence, behind those that it has: [tokens, key heads, dim] and [tokens, key heads,
  // value dim]. A page that other sequences have, too, is copied before it is written to.
  void append(std::int64_t slot, const ConstView& k, const ConstView& v);

  // The same for several sequences, all or none: slots[i] gets the rows from starts[i] up to
  // starts[i + 1]; starts is [slots + 1], i32 or i64.
  void append(const std::vector<std::int64_t>& slots, const ConstView& starts, const ConstView& k,
              const ConstView& v);

  // A new sequence of the first `length` tokens, or of all: its slot. It shares their pages.
  std::int64_t fork(std::int64_t slot, std::optional<std::int64_t> length = std::nullopt);

  // Forgets the tokens from `length` on, such as those that speculation got wrong. Pages that hold
  // no others are given back.
  void trim(std::int64_t slot, std::int64_t length);

  // Gives the slot back, and the pages that no other sequence has.
  void free(std::int64_t slot);

  [[nodiscard]] std::int64_t length(std::int64_t slot) const;                 // in tokens
  [[nodiscard]] std::vector<std::int32_t> pages_of(std::int64_t slot) const;  // in their order

  [[nodiscard]] std::int64_t sequences() const;   // in use
  [[nodiscard]] std::int64_t pages() const;       // of the pools
  [[nodiscard]] std::int64_t free_pages() const;  // in no sequence
  [[nodiscard]] std::int64_t page_size() const;   // in tokens

  // The keys of a call over these slots, in this order, as they are now: what is appended, trimmed
  // or freed later is not seen by `table` and `lengths`. May be moved.
  struct Batch {
    Tensor table, lengths;  // [slots, pages of the longest] of i32, [slots] of i64
    PagedKeys keys;         // views of these two and of the pools
  };
  [[nodiscard]] Batch batch(const std::vector<std::int64_t>& slots) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace treadle
