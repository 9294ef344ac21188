// The problems on which results are measured, forward and backward, and how errors are.
#pragma once

#include <cmath>
#include <vector>

#include "base/float16.h"
#include "fuzz.h"
#include "plain_attention.h"
#include "treadle/mods.h"

namespace treadle::test {

inline double mean_error(const Tensor& got, const Tensor& exact) {
  const Array x{ConstView(got)}, y{ConstView(exact)};
  double sum = 0;
  for (std::size_t i = 0; i < x.data.size(); ++i) sum += std::abs(x.data[i] - y.data[i]);
  return sum / static_cast<double>(x.data.size());
}

struct ExactnessCase {
  const char* name;
  std::int64_t queries, keys, dim;
  ScoreMod score_mod;
  MaskMod mask;

  friend void PrintTo(const ExactnessCase& c, std::ostream* out) { *out << c.name; }
};

// The first three when in a hurry.
inline std::vector<ExactnessCase> exactness_cases() {
  std::vector<ExactnessCase> cases{
      {"short", 64, 64, 64, {}, {}},
      {"causal", 300, 300, 64, {}, mods::causal()},
      {"odd", 129, 777, 80, {}, mods::window(100)},
      {"wide", 100, 1500, 128, {}, {}},
      {"long", 48, 6000, 32, {}, {}},
      {"bias", 200, 1100, 16, parse("score + float(kv - q) * 0.01"), {}},
      {"soft_cap", 150, 600, 64, mods::soft_cap(20), mods::causal_lower_right(150, 600)},
      {"narrow", 100, 2500, 4, parse("score * 3.0"), {}}};
  if (fuzz_small()) cases.resize(3);
  return cases;
}

// To 16 bits and back.
inline float rounded(float x, DType type) {
  return static_cast<float>(type == DType::bf16 ? static_cast<double>(bf16(x))
                                                : static_cast<double>(f16(x)));
}

}  // namespace treadle::test
