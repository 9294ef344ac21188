// Smooth score mods and masks as text, drawn at random, over captures with every form of index.
//
//   SmoothMods mods = smooth_mods(random, 3);   // "score + 0.5 * row[q] + sin(score)", "q >= kv"
//   smooth_forms()[3].make(random, sizes)       // a tensor for row
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "random_graph.h"
#include "treadle/tensor.h"

namespace treadle::test {

struct Sizes {
  std::int64_t batch = 1, heads = 1, key_batch = 1, key_heads = 1, queries = 1, keys = 1;
};

// A capture, how it is read, and memory for it. Those of f64 are learned.
struct Form {
  std::string name, read;
  Tensor (*make)(Random&, const Sizes&);
};

namespace detail {

inline Tensor reals(Random& random, Dims shape) {
  Tensor tensor(DType::f64, std::move(shape));
  for (double& x : tensor.data<double>()) x = random_real(random, -1, 1);
  return tensor;
}

inline Tensor integers(Random& random, std::int64_t count, std::int64_t low, std::int64_t high) {
  Tensor tensor(DType::i64, {count});
  for (std::int64_t& x : tensor.data<std::int64_t>()) x = random_int(random, low, high);
  return tensor;
}

// Places of table[q - kv + 1500], whatever the lengths are.
inline constexpr std::int64_t middle = 1500;

inline std::vector<Form> learned_forms() {
  using R = Random;
  using S = Sizes;
  return {
      {"number", "number", [](R& r, const S&) { return reals(r, {}); }},
      {"slopes", "slopes[h]", [](R& r, const S& s) { return reals(r, {s.heads}); }},
      {"gate", "gate[b, h]", [](R& r, const S& s) { return reals(r, {s.batch, s.heads}); }},
      {"row", "row[q]", [](R& r, const S& s) { return reals(r, {s.queries}); }},
      {"column", "column[kv]", [](R& r, const S& s) { return reals(r, {s.keys}); }},
      {"pairs", "pairs[q, kv]", [](R& r, const S& s) { return reals(r, {s.queries, s.keys}); }},
      {"flipped", "flipped[kv, q]", [](R& r, const S& s) { return reals(r, {s.keys, s.queries}); }},
      {"heads", "heads[h, q, kv]",
       [](R& r, const S& s) { return reals(r, {s.heads, s.queries, s.keys}); }},
      {"all", "all[b, h, q, kv]",
       [](R& r, const S& s) { return reals(r, {s.batch, s.heads, s.queries, s.keys}); }},
      {"strewn", "strewn[kv, b, q, h]",
       [](R& r, const S& s) { return reals(r, {s.keys, s.batch, s.queries, s.heads}); }},
      {"back", "back[q - kv + 1500]",
       [](R& r, const S& s) { return reals(r, {middle + s.queries}); }},
      {"ahead", "ahead[kv - q + 1500]",
       [](R& r, const S& s) { return reals(r, {middle + s.keys}); }},
      {"close", "close[q - kv + last]",
       [](R& r, const S& s) { return reals(r, {s.queries + s.keys - 1}); }},
      {"near", "near[min(max(q - kv, 0), 5)]", [](R& r, const S&) { return reals(r, {6}); }},
      {"steps", "steps[bucket[q]]", [](R& r, const S&) { return reals(r, {7}); }},
      {"by_step", "by_step[h, bucket[q]]", [](R& r, const S& s) { return reals(r, {s.heads, 7}); }},
      {"spread", "spread[2 * q + 3 * kv]",
       [](R& r, const S& s) { return reals(r, {2 * s.queries + 3 * s.keys}); }},
      {"blocks", "blocks[q // 4, kv // 8]",
       [](R& r, const S& s) { return reals(r, {s.queries / 4 + 1, s.keys / 8 + 1}); }},
      {"rest", "rest[kv % 3, h // 2]",
       [](R& r, const S& s) { return reals(r, {3, s.heads / 2 + 1}); }},
      {"square", "(square[q, kv] + square[kv, q])",
       [](R& r, const S& s) {
         const std::int64_t side = std::max(s.queries, s.keys);
         return reals(r, {side, side});
       }},
      {"twice", "twice[q] * twice[kv]",
       [](R& r, const S& s) { return reals(r, {std::max(s.queries, s.keys)}); }},
  };
}

inline std::vector<Form> given_forms() {
  using R = Random;
  using S = Sizes;
  return {{"last", "last",
           [](R&, const S& s) {
             Tensor tensor(DType::i64, {});
             tensor.data<std::int64_t>()[0] = s.keys - 1;
             return tensor;
           }},
          {"bucket", "bucket[q]", [](R& r, const S& s) { return integers(r, s.queries, 0, 6); }},
          {"documents", "documents[q] == documents[kv]",
           [](R& r, const S& s) {
             Tensor ids = integers(r, std::max(s.queries, s.keys), 0, 4);
             std::ranges::sort(ids.data<std::int64_t>());
             return ids;
           }},
          // Some see nothing.
          {"lengths", "kv < lengths[b]",
           [](R& r, const S& s) { return integers(r, s.batch, 0, s.keys); }},
          {"seen", "seen[q, kv]", [](R& r, const S& s) {
             Tensor seen(DType::boolean, {s.queries, s.keys});
             for (bool& x : seen.data<bool>()) x = random_int(r, 0, 2) == 0;
             return seen;
           }}};
}

inline std::string random_condition(Random& random) {
  switch (random_int(random, 0, 5)) {
    case 0: return "q >= kv";
    case 1: return fmt::format("(q + kv) % {} == 0", random_int(random, 2, 4));
    case 2: return fmt::format("abs(q - kv) < {}", random_int(random, 1, 9));
    case 3: return "h == 0";
    case 4: return "b < 1";
    default: return fmt::format("kv < {}", random_int(random, 1, 20));
  }
}

// Draws from `forms`, few, so that a mod reads one of them several times.
inline std::string random_smooth(Random& random, const std::vector<Form>& forms, int depth) {
  const auto part = [&] { return random_smooth(random, forms, depth - 1); };
  if (depth == 0) {
    const std::int64_t kind = random_int(random, 0, 9);
    if (kind < 3) return "score";
    if (kind == 3) return fmt::format("({:.3f})", random_real(random, -1.5, 1.5));
    return "(" + forms[random() % forms.size()].read + ")";
  }
  switch (random_int(random, 0, 7)) {
    case 0: return "sin(" + part() + ")";
    case 1: return "tanh(" + part() + ")";
    case 2: {
      const std::string x = part();
      return "exp(-(" + x + ") * (" + x + "))";
    }
    case 3: {
      const std::string x = part();
      return "sqrt(1.0 + (" + x + ") * (" + x + "))";
    }
    case 4: return "(" + part() + " - " + part() + ")";
    case 5: return "(" + part() + " + " + part() + ")";
    case 6: return "0.5 * (" + part() + ") * (" + part() + ")";
    default: return "where(" + random_condition(random) + ", " + part() + ", " + part() + ")";
  }
}

inline std::string random_smooth_mask(Random& random) {
  const std::vector<Form> given = given_forms();
  const std::string window = fmt::format("abs(q - kv) < {}", random_int(random, 1, 30));
  switch (random_int(random, 0, 9)) {
    case 0:
    case 1: return "true";
    case 2: return "q >= kv";
    case 3: return window;
    case 4: return "q >= kv && " + window;
    case 5: return fmt::format("(q - kv) % {} == 0", random_int(random, 2, 5));
    case 6: return fmt::format("(3 * q + 5 * kv + b + 2 * h) % {} != 0", random_int(random, 2, 4));
    case 7: return given[2].read + (chance(random, 0.5) ? " && q >= kv" : "");
    case 8: return given[3].read;
    default: return given[4].read;
  }
}

}  // namespace detail

// Every capture that may be read.
inline std::vector<Form> smooth_forms() {
  std::vector<Form> all = detail::learned_forms();
  std::ranges::copy(detail::given_forms(), std::back_inserter(all));
  return all;
}

struct SmoothMods {
  std::string score_mod, mask;
};

// Round after round takes the forms in turn, and some more at random.
inline SmoothMods smooth_mods(Random& random, std::uint64_t round) {
  const std::vector<Form> learned = detail::learned_forms();
  std::vector<Form> few{learned[round % learned.size()]};
  for (std::int64_t i = random_int(random, 0, 2); i > 0; --i)
    few.push_back(learned[random() % learned.size()]);
  const std::string first = "0.5 * " + few[0].read;
  const std::string drawn =
      detail::random_smooth(random, few, static_cast<int>(random_int(random, 0, 3)));
  const auto score_mod = [&]() -> std::string {
    switch (random_int(random, 0, 3)) {
      case 0: return "score + " + first + " + " + drawn;
      case 1: return "score * (1.0 + " + first + ") + " + drawn;
      case 2: return "tanh(score + " + first + ") * " + drawn;
      default: return drawn + " - sin(" + first + ")";
    }
  };
  return {score_mod(), detail::random_smooth_mask(random)};
}

}  // namespace treadle::test
