// How exact results are, beside those of plain arithmetic of the same precision.
#include "exactness.h"

#include <gtest/gtest.h>

#include "close.h"
#include "fuzz.h"

namespace treadle {
namespace {

using test::Array;
using test::ExactnessCase;
using test::ForwardRun;
using test::mean_error;
using test::mods_of;
using test::random_tensor;
using test::Rows;

class Exactness : public testing::TestWithParam<ExactnessCase> {
 protected:
  const ExactnessCase& c = GetParam();
  ForwardRun run{mods_of(c.score_mod, c.mask)};
  double scale = 1 / std::sqrt(static_cast<double>(c.dim));

  [[nodiscard]] Tensor rows(std::uint64_t seed, DType type, std::int64_t count) const {
    return random_tensor(seed, type, {1, 2, count, c.dim});
  }
};

INSTANTIATE_TEST_SUITE_P(Cases, Exactness, testing::ValuesIn(test::exactness_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Exactness, OfF32BesideTheDefinitionInF32) {
  const Tensor q = rows(1, DType::f32, c.queries);
  const Tensor k = rows(2, DType::f32, c.keys);
  const Tensor v = rows(3, DType::f32, c.keys);
  const Rows got = run({q, k, v}, scale);
  const Rows plain = run.reference({q, k, v}, scale);
  const Rows exact = run.reference({q, k, v}, scale, DType::f64);
  EXPECT_LE(mean_error(got.out, exact.out), 2 * mean_error(plain.out, exact.out));
  EXPECT_LE(mean_error(got.lse, exact.lse), 2 * mean_error(plain.lse, exact.lse) + 1e-7);
  EXPECT_LE(mean_error(got.max, exact.max), 2 * mean_error(plain.max, exact.max) + 2e-7);
}

TEST_P(Exactness, OfF64) {
  const Tensor q = rows(1, DType::f64, c.queries);
  const Tensor k = rows(2, DType::f64, c.keys);
  const Tensor v = rows(3, DType::f64, c.keys);
  const Rows got = run({q, k, v}, scale);
  const Rows plain = run.reference({q, k, v}, scale);
  EXPECT_LT(mean_error(got.out, plain.out), 1e-15);
  EXPECT_LT(mean_error(got.lse, plain.lse), 4e-15);
  EXPECT_LT(mean_error(got.max, plain.max), 4e-15);
}

// As FlexAttention does it in eager mode: scores and softmax in f32, weights rounded to the type of
// the queries, their products with V added in f32, and the result rounded.
Tensor policy(const ExactnessCase& c, const Tensor& q, const Tensor& k, const Tensor& v,
              double scale) {
  const Array a{ConstView(q)}, b{ConstView(k)}, w{ConstView(v)};
  const auto rounded = [&](float x) { return test::rounded(x, q.dtype()); };
  const test::Traced mod = test::traced_score(c.score_mod);
  const test::Traced mask = test::traced_mask(c.mask);
  Tensor out(q.dtype(), {1, 2, c.queries, c.dim});
  std::vector<float> p(static_cast<std::size_t>(c.keys));
  std::vector<std::int64_t> kv(p.size());
  std::iota(kv.begin(), kv.end(), 0);
  ir::Interpreter<float> score_mod(mod.graph, {});
  ir::Interpreter<double> visible(mask.graph, {});
  const std::int64_t b0 = 0;
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t m = 0; m < c.queries; ++m) {
      for (std::int64_t n = 0; n < c.keys; ++n) {
        float s = 0;
        for (std::int64_t d = 0; d < c.dim; ++d)
          s += static_cast<float>(a.row(0, h, m)[d]) * static_cast<float>(b.row(0, h, n)[d]);
        p[static_cast<std::size_t>(n)] = s * static_cast<float>(scale);
      }
      score_mod({.score = p, .b = {&b0, 1}, .h = {&h, 1}, .q = {&m, 1}, .kv = kv}, c.keys);
      visible({.b = {&b0, 1}, .h = {&h, 1}, .q = {&m, 1}, .kv = kv}, c.keys);
      const auto scores = score_mod.reals(0);
      const auto seen = visible.booleans(0);
      const auto at = [](auto span, std::size_t n) { return span[span.size() == 1 ? 0 : n]; };
      float max = -std::numeric_limits<float>::infinity();
      for (std::size_t n = 0; n < p.size(); ++n)
        if (at(seen, n) != 0) max = std::max(max, at(scores, n));
      float sum = 0;
      for (std::size_t n = 0; n < p.size(); ++n) {
        p[n] = at(seen, n) != 0 ? std::exp(at(scores, n) - max) : 0;
        sum += p[n];
      }
      for (float& x : p) x = rounded(x / sum);
      for (std::int64_t d = 0; d < c.dim; ++d) {
        float total = 0;
        for (std::int64_t n = 0; n < c.keys; ++n)
          total += p[static_cast<std::size_t>(n)] * static_cast<float>(w.row(0, h, n)[d]);
        base::store_double(out.view().data(), q.dtype(), (h * c.queries + m) * c.dim + d,
                           static_cast<double>(total));
      }
    }
  }
  return out;
}

TEST_P(Exactness, OfSixteenBitsBesideFlexAttention) {
  ExactnessCase few = c;
  few.queries = std::min<std::int64_t>(c.queries, 8);  // the loops above are slow
  for (const DType type : {DType::bf16, DType::f16}) {
    const Tensor q = rows(1, type, few.queries);
    const Tensor k = rows(2, type, c.keys);
    const Tensor v = rows(3, type, c.keys);
    const Rows got = run({q, k, v}, scale);
    const Tensor theirs = policy(few, q, k, v, scale);
    const Rows exact = run.reference({q, k, v}, scale, DType::f64);
    EXPECT_LE(mean_error(got.out, exact.out), 1.1 * mean_error(theirs, exact.out) + 1e-7)
        << name_of(type);
    // Nothing is lost but in the last rounding.
    const Rows wide = run.reference({q, k, v}, scale, DType::f32);
    EXPECT_LE(mean_error(got.out, exact.out),
              1.01 * mean_error(base::convert(wide.out, type), exact.out) + 1e-9);
  }
}

}  // namespace
}  // namespace treadle
