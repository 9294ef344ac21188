// A key/value cache as plain as can be: every sequence is a list of tokens of its own. What a pool
// would hold of each is worked out here once more.
//
//   CacheModel model(cache_case);
//   model.append(slot, k, v, 0, k.size(0));     // beside cache.append(slot, k, v)
//   model.packed({slot}).k                      // what PagedKV::batch({slot}) stands for
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <ostream>
#include <vector>

#include "base/element.h"
#include "treadle/treadle.h"

namespace treadle::test {

enum class ScaleKind : std::uint8_t { none, token, page, given };

struct CacheCase {
  DType rows = DType::f32, k = DType::f32, v = DType::f32;
  ScaleKind k_scales = ScaleKind::none, v_scales = ScaleKind::none;
  std::int64_t heads = 2, dim = 8, value_dim = 8, page_size = 4;
};

inline void PrintTo(const CacheCase& c, std::ostream* out) {
  constexpr const char* kinds[] = {"", " per token", " per page", " given"};
  *out << name_of(c.rows) << " to " << name_of(c.k) << kinds[static_cast<int>(c.k_scales)]
       << " and " << name_of(c.v) << kinds[static_cast<int>(c.v_scales)] << ", " << c.heads
       << " heads, dims " << c.dim << " and " << c.value_dim << ", pages of " << c.page_size;
}

// The scale of every page and head if they are given.
inline float given_scale(std::int64_t head) { return 0.015f + 0.01f * static_cast<float>(head); }

struct StoredToken {
  struct Row {
    std::vector<double> stored;  // [heads, dim], as elements of the pool
    std::vector<float> scales;   // [heads], or none
  };
  Row k, v;
};

inline double most_stored(DType type) {
  return type == DType::i8 ? 127 : type == DType::e4m3 ? 448 : 57344;
}

inline float expected_scale(DType type, double greatest) {
  if (greatest == 0) return 1;
  return std::max(static_cast<float>(greatest / most_stored(type)),
                  std::numeric_limits<float>::min());
}

// As it is read back.
inline double stored_in(DType type, double x) {
  double memory = 0;
  base::store_double(&memory, type, 0, type == DType::i8 ? std::nearbyint(x) : x);
  return base::load_double(&memory, type, 0);
}

class CacheModel {
 public:
  using Tokens = std::vector<StoredToken>;
  std::map<std::int64_t, Tokens> sequences;

  explicit CacheModel(const CacheCase& c) : case_(c) {}

  // Rows first .. end of packed ones.
  void append(std::int64_t slot, const ConstView& k, const ConstView& v, std::int64_t first,
              std::int64_t end) {
    Tokens& tokens = sequences[slot];
    const auto begin = std::ssize(tokens);
    tokens.resize(tokens.size() + static_cast<std::size_t>(end - first));
    append(tokens, &StoredToken::k, case_.k, case_.k_scales, k, begin, first);
    append(tokens, &StoredToken::v, case_.v, case_.v_scales, v, begin, first);
  }

  struct Packed {
    Tensor k, v;
    std::vector<std::int32_t> starts;
  };
  [[nodiscard]] Packed packed(const std::vector<std::int64_t>& slots) const {
    Packed all;
    all.starts = {0};
    for (const std::int64_t slot : slots)
      all.starts.push_back(all.starts.back() +
                           static_cast<std::int32_t>(sequences.at(slot).size()));
    all.k = rows(slots, all.starts.back(), &StoredToken::k, case_.k, case_.k_scales, case_.dim);
    all.v =
        rows(slots, all.starts.back(), &StoredToken::v, case_.v, case_.v_scales, case_.value_dim);
    return all;
  }

 private:
  void append(Tokens& tokens, StoredToken::Row StoredToken::* which, DType type, ScaleKind kind,
              const ConstView& rows, std::int64_t begin, std::int64_t first) const {
    const std::int64_t dim = rows.size(2);
    const auto element = [&](std::int64_t token, std::int64_t h, std::int64_t d) {
      return base::load_double(
          rows.data(), rows.dtype(),
          (first + token - begin) * rows.stride(0) + h * rows.stride(1) + d * rows.stride(2));
    };
    const auto scale_of = [&](std::int64_t from, std::int64_t to, std::int64_t h) {
      double greatest = 0;
      for (std::int64_t t = from; t < to; ++t)
        for (std::int64_t d = 0; d < dim; ++d)
          greatest = std::max(greatest, std::abs(element(t, h, d)));
      return expected_scale(type, greatest);
    };
    for (std::int64_t t = begin; t < std::ssize(tokens); ++t) {
      StoredToken::Row& row = tokens[static_cast<std::size_t>(t)].*which;
      const std::int64_t page = t / case_.page_size * case_.page_size;
      for (std::int64_t h = 0; h < case_.heads; ++h) {
        if (kind == ScaleKind::given) row.scales.push_back(given_scale(h));
        if (kind == ScaleKind::token) row.scales.push_back(scale_of(t, t + 1, h));
        if (kind == ScaleKind::page) {
          const StoredToken::Row& head = tokens[static_cast<std::size_t>(page)].*which;
          row.scales.push_back(
              page >= begin
                  ? scale_of(page, std::min(page + case_.page_size, std::ssize(tokens)), h)
                  : head.scales[static_cast<std::size_t>(h)]);
        }
        for (std::int64_t d = 0; d < dim; ++d) {
          double x = element(t, h, d);
          if (kind != ScaleKind::none) {
            const double most = most_stored(type);
            x = std::clamp(x / row.scales[static_cast<std::size_t>(h)], -most, most);
          }
          row.stored.push_back(stored_in(type, x));
        }
      }
    }
  }

  [[nodiscard]] Tensor rows(const std::vector<std::int64_t>& slots, std::int64_t count,
                            StoredToken::Row StoredToken::* which, DType type, ScaleKind kind,
                            std::int64_t dim) const {
    Tensor made(kind == ScaleKind::none ? type : DType::f32, {count, case_.heads, dim});
    std::int64_t at = 0;
    for (const std::int64_t slot : slots) {
      for (const StoredToken& token : sequences.at(slot)) {
        const StoredToken::Row& row = token.*which;
        for (std::size_t i = 0; i < row.stored.size(); ++i) {
          double x = row.stored[i];
          if (!row.scales.empty())
            x = static_cast<float>(x) * row.scales[i / static_cast<std::size_t>(dim)];
          base::store_double(made.view().data(), made.dtype(), at++, x);
        }
      }
    }
    return made;
  }

  CacheCase case_;
};

}  // namespace treadle::test
