// One function per variant, then the list.
#include "cli/demo_variants.h"

#include <algorithm>
#include <cmath>

#include "base/copy.h"
#include "cli/bench_masks.h"
#include "cli/random_tensor.h"
#include "treadle/mods.h"

namespace treadle::cli {
namespace {

constexpr std::int64_t window_size = 256;
constexpr std::int64_t bias_reach = 128;

Prepared prepare_plain(const Sizes& sizes, ScoreMod score_mod, MaskMod mask) {
  Prepared ready;
  ready.options.score_mod = std::move(score_mod);
  ready.options.mask = std::move(mask);
  ready.key_heads = sizes.heads;
  return ready;
}

Prepared prepare_full(const Sizes& sizes, DType) { return prepare_plain(sizes, {}, {}); }

Prepared prepare_causal(const Sizes& sizes, DType) {
  return prepare_plain(sizes, {}, mods::causal());
}

Prepared prepare_window(const Sizes& sizes, DType) {
  return prepare_plain(sizes, {}, mods::causal() & mods::window(window_size));
}

Prepared prepare_alibi(const Sizes& sizes, DType dtype) {
  Tensor slopes(DType::f32, {sizes.heads});
  for (std::int64_t h = 0; h < sizes.heads; ++h) {
    const double exponent = -8.0 * static_cast<double>(h + 1) / static_cast<double>(sizes.heads);
    slopes.at<float>({h}) = static_cast<float>(std::exp2(exponent));
  }
  Tensor memory = base::convert(slopes, dtype);
  Prepared ready = prepare_plain(sizes, mods::alibi({"slopes", memory}), mods::causal());
  ready.memory.push_back(std::move(memory));
  return ready;
}

Prepared prepare_soft_cap(const Sizes& sizes, DType) {
  return prepare_plain(sizes, mods::soft_cap(20), {});
}

Prepared prepare_relative_bias(const Sizes& sizes, DType dtype) {
  const Tensor table = random_tensor({sizes.heads, 2 * bias_reach + 1}, 100, 0.5);
  Tensor memory = base::convert(table, dtype);
  Prepared ready = prepare_plain(sizes, mods::relative_bias({"table", memory}, bias_reach), {});
  ready.options.gradients = {"table"};
  ready.memory.push_back(std::move(memory));
  return ready;
}

// Documents of growing length, one after the other: 1, 2, 3, ... sixteenths of the sequence.
Prepared prepare_document(const Sizes& sizes, DType) {
  Tensor ids(DType::i32, {std::max(sizes.queries, sizes.keys)});
  const std::int64_t step = std::max<std::int64_t>(ids.count() / 16, 1);
  std::int64_t position = 0;
  for (std::int32_t document = 0; position < ids.count(); ++document) {
    const std::int64_t end = std::min(position + step * (document + 1), ids.count());
    for (; position < end; ++position) ids.at<std::int32_t>({position}) = document;
  }
  Prepared ready = prepare_plain(sizes, {}, mods::document({"ids", ids}));
  ready.memory.push_back(std::move(ids));
  return ready;
}

Prepared prepare_prefix_lm(const Sizes& sizes, DType) {
  Tensor prefix(DType::i32, {sizes.batch});
  std::ranges::fill(prefix.data<std::int32_t>(), static_cast<std::int32_t>(sizes.keys / 4));
  Prepared ready = prepare_plain(sizes, {}, mods::prefix_lm({"prefix", prefix}));
  ready.memory.push_back(std::move(prefix));
  return ready;
}

Prepared prepare_grouped(const Sizes& sizes, DType) {
  Prepared ready = prepare_plain(sizes, {}, mods::causal());
  // A quarter of the heads, or the next smaller number that divides them: 8 -> 2, 12 -> 3, 6 -> 1.
  ready.key_heads = std::max<std::int64_t>(sizes.heads / 4, 1);
  while (sizes.heads % ready.key_heads != 0) --ready.key_heads;
  return ready;
}

Prepared prepare_sparse(const Sizes& sizes, DType) {
  return prepare_plain(sizes, {}, parse(local_or_strided_text));
}

// Long enough for sparsity to pay: eight times the length, on a quarter of the heads.
Sizes sizes_of_sparse(Sizes sizes) {
  sizes.heads = std::max<std::int64_t>(sizes.heads / 4, 1);
  sizes.queries *= 8;
  sizes.keys *= 8;
  return sizes;
}

// A token against a cache of sixteen times the length.
Sizes sizes_of_decode(Sizes sizes) {
  sizes.queries = 1;
  sizes.keys *= 16;
  return sizes;
}

}  // namespace

std::vector<Variant> demo_variants() {
  return {
      {"full", "every query sees every key", prepare_full},
      {"causal", "a query sees its past", prepare_causal},
      {"window", "the 256 latest keys", prepare_window},
      {"alibi", "causal, a slope per head", prepare_alibi},
      {"softcap", "scores kept within +-20", prepare_soft_cap},
      {"relative", "learnable bias per distance", prepare_relative_bias},
      {"document", "each document sees itself", prepare_document},
      {"prefix", "causal after a prefix", prepare_prefix_lm},
      {"gqa", "causal, 4 heads share keys", prepare_grouped},
      {.name = "sparse",
       .what = "latest 128 and every 128th",
       .prepare = prepare_sparse,
       .timed_at = sizes_of_sparse},
      {.name = "decode",
       .what = "one token and its cache",
       .prepare = prepare_full,
       .timed_at = sizes_of_decode,
       .decodes = true},
  };
}

}  // namespace treadle::cli
