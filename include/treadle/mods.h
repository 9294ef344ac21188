// Score mods and masks in one line each, over treadle/trace.h: combine them, or copy one to write
// your own.
//
//   options.score_mod = mods::alibi(slopes);
//   options.mask = mods::causal() & mods::window(1024);
//
// Nothing is checked, and tables are captures that the caller owns and may bind again. Masks that
// check their numbers and make their own tables are in treadle/patterns.h, those of the Sparse
// Transformer in treadle/sparse_transformer.h; where they mean the same they call these.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "treadle/capture.h"
#include "treadle/mod.h"
#include "treadle/trace.h"

namespace treadle::mods {

// ---- score mods ----

// score + slopes[h] * (kv - q)
inline ScoreMod alibi(const Capture& slopes) {
  return [=](Score s, Index, Index h, Index q, Index kv) { return s + slopes(h) * (kv - q); };
}

// score + table[h, clamp(q - kv, -reach, reach) + reach], a table of [heads, 2 * reach + 1]
// learnable numbers
inline ScoreMod relative_bias(const Capture& table, std::int64_t reach) {
  return [=](Score s, Index, Index h, Index q, Index kv) {
    return s + table(h, clamp(q - kv, -reach, reach) + reach);
  };
}

// cap * tanh(score / cap): scores stay between -cap and cap
inline ScoreMod soft_cap(double cap) {
  return [=](Score s, Index, Index, Index, Index) { return cap * tanh(s / cap); };
}

// second(first(score))
inline ScoreMod chain(const ScoreMod& first, const ScoreMod& second) {
  return [=](Score s, Index b, Index h, Index q, Index kv) {
    return second(first(s, b, h, q, kv), b, h, q, kv);
  };
}

// ---- masks ----

// every query sees itself and what came before: q >= kv
inline MaskMod causal() {
  return [](Index, Index, Index q, Index kv) { return q >= kv; };
}

// causal when the last query stands at the last key (Sq != Skv): q + (keys - queries) >= kv
inline MaskMod causal_lower_right(std::int64_t queries, std::int64_t keys) {
  return [=](Index, Index, Index q, Index kv) { return q + (keys - queries) >= kv; };
}

// keys less than `size` away: |q - kv| < size. With causal(): the `size` latest keys.
inline MaskMod window(std::int64_t size) {
  return [=](Index, Index, Index q, Index kv) { return abs(q - kv) < size; };
}

// the same with a size that may change from call to call
inline MaskMod window(const Capture& size) {
  return [=](Index, Index, Index q, Index kv) { return abs(q - kv) < size; };
}

// a prefix that everybody sees, then causal: kv < prefix[b] || q >= kv.
// patterns::prefix_lm takes the lengths as numbers.
inline MaskMod prefix_lm(const Capture& prefix) {
  return [=](Index b, Index, Index q, Index kv) { return kv < prefix(b) || q >= kv; };
}

// packed documents, one id per position: ids[q] == ids[kv].
// patterns::documents takes their lengths.
inline MaskMod document(const Capture& ids) {
  return [=](Index, Index, Index q, Index kv) { return ids(q) == ids(kv); };
}

// sequences of different lengths in one batch: kv < lengths[b]
inline MaskMod padding(const Capture& lengths) {
  return [=](Index b, Index, Index, Index kv) { return kv < lengths(b); };
}

// every `step`-th key: (q - kv) % step == 0
inline MaskMod dilated(std::int64_t step) {
  return [=](Index, Index, Index q, Index kv) { return (q - kv) % step == 0; };
}

}  // namespace treadle::mods

namespace treadle {

// Masks combine like bools.
inline MaskMod operator&(const MaskMod& a, const MaskMod& b) {
  return [=](Index i, Index h, Index q, Index kv) { return a(i, h, q, kv) && b(i, h, q, kv); };
}
inline MaskMod operator|(const MaskMod& a, const MaskMod& b) {
  return [=](Index i, Index h, Index q, Index kv) { return a(i, h, q, kv) || b(i, h, q, kv); };
}
inline MaskMod operator!(const MaskMod& a) {
  return [=](Index i, Index h, Index q, Index kv) { return !a(i, h, q, kv); };
}

namespace mods {

// FlexAttention's names for the same.
template <std::convertible_to<MaskMod>... Masks>
MaskMod and_masks(const Masks&... masks) {
  return (MaskMod() & ... & MaskMod(masks));
}
template <std::convertible_to<MaskMod>... Masks>
  requires(sizeof...(Masks) > 0)
MaskMod or_masks(const Masks&... masks) {
  return (MaskMod(masks) | ...);
}
inline MaskMod not_mask(const MaskMod& mask) { return !mask; }

}  // namespace mods
}  // namespace treadle
