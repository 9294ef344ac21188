// How exact gradients are, beside those of plain arithmetic of the same precision.
#include <gtest/gtest.h>

#include "base/copy.h"
#include "eager_backward.h"
#include "exactness.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

using test::ExactnessCase;
using test::mean_error;
using test::random_tensor;

struct ExactProblem {
  Tensor q, k, v, dout, dlse;
};

ExactProblem as(const ExactProblem& p, DType type) {
  const auto to = [&](const Tensor& t) { return base::convert(t, type); };
  return {to(p.q), to(p.k), to(p.v), to(p.dout), to(p.dlse)};
}

class BackwardExactness : public testing::TestWithParam<ExactnessCase> {
 protected:
  const ExactnessCase& c = GetParam();

  [[nodiscard]] ExactProblem problem(DType type, std::int64_t queries) const {
    return {random_tensor(1, type, {1, 2, queries, c.dim}),
            random_tensor(2, type, {1, 2, c.keys, c.dim}),
            random_tensor(3, type, {1, 2, c.keys, c.dim}),
            random_tensor(4, type, {1, 2, queries, c.dim}),
            random_tensor(5, DType::f32, {1, 2, queries})};
  }
  // With a bias for every key of a head, if it is given: its gradient is summed over queries.
  [[nodiscard]] Backward gradients(const ExactProblem& p, Backend backend,
                                   const Tensor* bias = nullptr, bool with_dlse = true) const {
    Options options;
    options.score_mod = c.score_mod;
    options.mask = c.mask;
    options.backend = backend;
    if (bias != nullptr) {
      const Capture table("bias", *bias);
      options.score_mod = mods::chain(c.score_mod, [table](Score s, Index, Index h, Index,
                                                           Index kv) { return s + table(h, kv); });
      options.gradients = {"bias"};
    }
    const Attention attention = compile(options);
    const Forward y = attention.forward({p.q, p.k, p.v}, {.lse = true});
    return attention.backward({p.q, p.k, p.v}, {y.out, y.lse}, p.dout,
                              with_dlse ? std::optional<ConstView>(p.dlse) : std::nullopt);
  }
  static void expect_as_exact(const Tensor& got, const Tensor& plain, const Tensor& exact,
                              const char* name) {
    EXPECT_LE(mean_error(got, exact), 2 * mean_error(plain, exact)) << name;
  }
  static void expect_as_exact(const Backward& got, const Backward& plain, const Backward& exact) {
    expect_as_exact(got.dq, plain.dq, exact.dq, "dq");
    expect_as_exact(got.dk, plain.dk, exact.dk, "dk");
    expect_as_exact(got.dv, plain.dv, exact.dv, "dv");
  }
};

INSTANTIATE_TEST_SUITE_P(Cases, BackwardExactness, testing::ValuesIn(test::exactness_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(BackwardExactness, OfF32BesideTheDefinitionInF32) {
  const ExactProblem p = problem(DType::f32, c.queries);
  expect_as_exact(gradients(p, Backend::cpu), gradients(p, Backend::reference),
                  gradients(as(p, DType::f64), Backend::reference));
}

TEST_P(BackwardExactness, OfACaptureInF32BesideTheDefinitionInF32) {
  const ExactProblem p = problem(DType::f32, c.queries);
  const Tensor bias = random_tensor(6, DType::f32, {2, c.keys});
  const Tensor wide = base::convert(bias, DType::f64);
  const Backward got = gradients(p, Backend::cpu, &bias);
  const Backward plain = gradients(p, Backend::reference, &bias);
  const Backward exact = gradients(as(p, DType::f64), Backend::reference, &wide);
  expect_as_exact(got, plain, exact);
  expect_as_exact(got.of("bias"), plain.of("bias"), exact.of("bias"), "bias");
}

TEST_P(BackwardExactness, OfSixteenBitsBesideFlexAttention) {
  const double scale = 1 / std::sqrt(static_cast<double>(c.dim));
  // Where scores are steep and values few, the rounding of the output is most of the error of dQ.
  const auto from = c.name == std::string("narrow") ? test::Delta::output : test::Delta::weights;
  for (const DType type : {DType::bf16, DType::f16}) {
    const ExactProblem p =
        problem(type, std::min<std::int64_t>(c.queries, 8));  // plain loops are slow
    const Backward got = gradients(p, Backend::cpu, nullptr, false);
    const Backward exact = gradients(as(p, DType::f64), Backend::reference, nullptr, false);
    const test::EagerGradients theirs = test::eager_backward(c, p.q, p.k, p.v, p.dout, scale, from);
    const auto expect_as_theirs = [&](const Tensor& ours, const Tensor& eager, const Tensor& right,
                                      const char* name) {
      EXPECT_LE(mean_error(ours, right), 1.1 * mean_error(eager, right) + 1e-7)
          << name << " in " << name_of(type);
    };
    expect_as_theirs(got.dq, theirs.dq, exact.dq, "dq");
    expect_as_theirs(got.dk, theirs.dk, exact.dk, "dk");
    expect_as_theirs(got.dv, theirs.dv, exact.dv, "dv");
  }
}

}  // namespace
}  // namespace treadle
