// Random masks of several terms, and what calls with them are given.
//
//   const SplitMods mods = split_mods(random, {.causal = true});
//   const Attention attention = compile(mods.options());
#pragma once

#include <array>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "backend/mask_term.h"
#include "forward_run.h"
#include "fuzz.h"
#include "ir/print.h"
#include "passes/simplify.h"
#include "placed.h"
#include "random_mask.h"
#include "special_values.h"
#include "treadle/treadle.h"

namespace treadle::test {

// Two graphs, and the captures of the mask: doc and num.
struct SplitMods {
  std::string score = "score";
  ir::Graph mask;
  std::shared_ptr<Tensor> documents, numbers;

  // All that the mask may read, in its order.
  [[nodiscard]] std::vector<Capture> captures() const {
    std::vector<Capture> bound;
    for (const ir::Slot& slot : mask.slots())
      bound.emplace_back(slot.name, slot.name == "doc" ? *documents : *numbers);
    return bound;
  }
  [[nodiscard]] backend::MaskTerms terms() const {
    std::vector<ConstView> memory;
    for (const Capture& capture : captures()) memory.push_back(capture.view());
    return backend::terms_of(mask, memory);
  }
  [[nodiscard]] Mods graphs() const {
    Mods mods;
    mods.score_mod = mods_of(parse(score), {}).score_mod;
    mods.mask = mask;
    mods.captures = captures();
    mods.memory = {documents, numbers};
    return mods;
  }
  [[nodiscard]] Options options() const {
    Options options;
    options.score_mod = parse(score);
    options.mask = parse(ir::to_text(mask), captures());
    options.scale = 0.25;
    return options;
  }
  [[nodiscard]] std::string text() const {
    return "score mod " + score + "\nmask " + ir::to_text(mask);
  }
};

// Other documents, of a few lengths, and other numbers: kernels stay the same.
inline void draw_captures(Random& random, const SplitMods& mods) {
  std::int32_t id = 0;
  const auto rarely = random_int(random, 3, 60);
  for (std::int32_t& x : mods.documents->data<std::int32_t>())
    x = id += random_int(random, 0, rarely) == 0 ? 1 : 0;
  for (std::int32_t& x : mods.numbers->data<std::int32_t>())
    x = static_cast<std::int32_t>(random_int(random, 0, 30));
}

// Scores that stay multiples of a small power of two, but for the last.
inline std::string random_score(Random& random) {
  constexpr const char* scores[]{
      "score - 0.125 * float(abs(q - kv)) * float(h + 1)", "score + 0.25 * float((q * 3 + kv) % 5)",
      "score * 0.5 + where(kv % 7 == 0, 1.5, 0.0)", "8.0 * tanh(score / 8.0)"};
  const auto drawn = static_cast<std::size_t>(random_int(random, 0, 7));
  return drawn < std::size(scores) ? scores[drawn] : "score";
}

struct SplitOptions {
  bool causal = false, documents = true;
  std::int64_t longest = 1600;  // positions that have a document
};

// Of several terms, unless that takes too long to find.
inline SplitMods split_mods(Random& random, const SplitOptions& wanted = {}) {
  SplitMods mods;
  mods.documents = std::make_shared<Tensor>(DType::i32, Dims{wanted.longest});
  mods.numbers = std::make_shared<Tensor>(DType::i32, Dims{4});
  draw_captures(random, mods);
  for (int tries = 0; tries < 6; ++tries) {
    ir::Builder build;
    ir::NodeId mask = RandomMask(random, {.documents = wanted.documents, .numbers = true})
                          .make(build, static_cast<int>(random_int(random, 1, 5)));
    if (wanted.causal) {
      mask = build(ir::Op::logical_and, mask,
                   build(ir::Op::le, build.input(ir::Input::kv), build.input(ir::Input::q)));
    }
    mods.mask = passes::simplify(build.finish({mask}));
    if (!mods.terms().empty()) break;
  }
  return mods;
}

struct SplitShape {
  std::int64_t batch = 1, heads = 1, key_heads = 1, queries = 1, keys = 1, dim = 4, value_dim = 5;
  DType type = DType::f32;
  bool shared_keys = false;  // by all batches
};

inline SplitShape random_shape(Random& random, std::int64_t longest) {
  SplitShape s;
  s.batch = random_int(random, 1, 2);
  s.key_heads = random_int(random, 1, 2);
  s.heads = s.key_heads * random_int(random, 1, 2);
  s.queries = random_int(random, 1, longest);
  s.keys = random_int(random, 1, longest);
  s.shared_keys = random_int(random, 0, 4) == 0;
  const auto type = random_int(random, 0, 9);
  s.type = type < 6 ? DType::f32 : type < 8 ? DType::f64 : DType::bf16;
  return s;
}

// Other lengths; sometimes more keys than a chunk has.
inline void draw_lengths(Random& random, SplitShape& shape, std::int64_t longest,
                         bool many_keys = true) {
  shape.queries = random_int(random, 1, longest);
  shape.keys = random_int(random, 1, longest);
  if (!many_keys || random_int(random, 0, 9) != 0) return;
  shape.queries = random_int(random, 1, 20);
  shape.keys = random_int(random, 1000, 1300);
}

// Inputs, and gradients of what they give.
struct SplitTensors {
  Tensor q, k, v, dout, dlse;

  SplitTensors(Random& random, const SplitShape& s)
      : q(s.type, {s.batch, s.heads, s.queries, s.dim}),
        k(s.type, {s.shared_keys ? 1 : s.batch, s.key_heads, s.keys, s.dim}),
        v(s.type, {s.shared_keys ? 1 : s.batch, s.key_heads, s.keys, s.value_dim}),
        dout(s.type, {s.batch, s.heads, s.queries, s.value_dim}),
        dlse(s.type == DType::f64 ? DType::f64 : DType::f32, {s.batch, s.heads, s.queries}) {
    fill_eighths(random, q);
    fill_eighths(random, k);
    fill_reals(random, v);
    fill_reals(random, dout);
    for (std::int64_t i = 0; i < dlse.count(); ++i)
      base::store_double(dlse.view().data(), dlse.dtype(), i, random_real(random, -1, 1));
  }
  [[nodiscard]] Inputs inputs() const { return {q, k, v}; }
};

// Some infinities and NaN, all in one row.
inline void spoil_a_row(Random& random, Tensor& tensor) {
  constexpr std::array values{inf, -inf, nan};
  const std::int64_t row = tensor.shape().back();
  const std::int64_t first = random_int(random, 0, tensor.count() / row - 1) * row;
  for (std::int64_t i = 0; i < row; ++i) {
    if (random_int(random, 0, 2) != 0) continue;
    base::store_double(tensor.view().data(), tensor.dtype(), first + i,
                       values[static_cast<std::size_t>(random_int(random, 0, 2))]);
  }
}

}  // namespace treadle::test
