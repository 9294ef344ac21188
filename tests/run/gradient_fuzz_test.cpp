// Gradients of random smooth mods under random masks, on random shapes: against differences of the
// forward pass, and against the definition, all in f64.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "fuzz.h"
#include "plain_attention.h"
#include "smooth_mods.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

using test::chance;
using test::Random;
using test::random_int;
using test::Sizes;

constexpr int shapes_per_mod = 26;

Sizes random_sizes(Random& random) {
  Sizes s;
  s.batch = random_int(random, 1, 3);
  s.key_batch = chance(random, 0.25) ? 1 : s.batch;
  s.key_heads = random_int(random, 1, 2);
  s.heads = s.key_heads * random_int(random, 1, 3);
  s.queries = random_int(random, 1, 60);
  s.keys = random_int(random, 1, 60);
  if (chance(random, 0.08)) {  // more keys than a chunk has
    s.batch = s.key_batch = 1;
    s.queries = random_int(random, 1, 4);
    s.keys = random_int(random, 1025, 1300);
  }
  return s;
}

// A pair of mods with kernels for it, and the same by the definition.
struct Functions {
  test::SmoothMods mods;
  std::int64_t dim = 1, value_dim = 1;
  Attention attention, reference;

  [[nodiscard]] std::string text() const {
    return fmt::format("score mod {}\nmask {}\ndim {}, value dim {}", mods.score_mod, mods.mask,
                       dim, value_dim);
  }
};

Functions random_functions(Random& random, std::uint64_t seed) {
  const test::SmoothMods mods = test::smooth_mods(random, seed);
  std::vector<Capture> any;  // until calls bind others: only types and ranks count
  for (const test::Form& form : test::smooth_forms())
    any.emplace_back(form.name, std::make_shared<const Tensor>(form.make(random, {})));
  Options options;
  options.score_mod = parse(mods.score_mod, any);
  options.mask = parse(mods.mask, any);
  for (const CaptureInfo& info : compile(options).captures())
    if (info.dtype == DType::f64) options.gradients.push_back(info.name);
  Options exact = options;
  exact.backend = Backend::reference;
  return {mods, random_int(random, 1, 12), random_int(random, 1, 12), compile(options),
          compile(exact)};
}

// One call's memory, and the loss <out, weight> + <lse, lse_weight>.
struct FuzzedProblem {
  std::map<std::string, Tensor> tensors;  // q, k and v, and captures by name
  Tensor weight, lse_weight;
  Call call;

  [[nodiscard]] Inputs inputs() const {
    return {tensors.at(":q"), tensors.at(":k"), tensors.at(":v")};
  }
};

FuzzedProblem fuzzed_problem(Random& random, const Functions& f, const Sizes& s) {
  using test::detail::reals;
  FuzzedProblem p;
  if (s.queries % 3 == 0)
    p.call.dropout = {.probability = 0.4, .seed = static_cast<std::uint64_t>(s.keys)};
  p.tensors.emplace(":q", reals(random, {s.batch, s.heads, s.queries, f.dim}));
  p.tensors.emplace(":k", reals(random, {s.key_batch, s.key_heads, s.keys, f.dim}));
  p.tensors.emplace(":v", reals(random, {s.key_batch, s.key_heads, s.keys, f.value_dim}));
  p.weight = reals(random, {s.batch, s.heads, s.queries, f.value_dim});
  p.lse_weight = reals(random, {s.batch, s.heads, s.queries});
  const std::vector<CaptureInfo> infos = f.attention.captures();
  for (const test::Form& form : test::smooth_forms()) {
    if (std::ranges::find(infos, form.name, &CaptureInfo::name) == infos.end()) continue;
    const auto [at, added] = p.tensors.emplace(form.name, form.make(random, s));
    p.call.captures.emplace_back(form.name, ConstView(at->second));
  }
  p.call.executor = serial_executor();
  p.call.lse = true;
  return p;
}

struct Loss {
  double value = 0, size = 0;  // the sum, and that of its terms' sizes
};

Loss loss(const Functions& f, const FuzzedProblem& p, const Call& call) {
  const Forward y = f.attention.forward(p.inputs(), call);
  Loss sum;
  const auto add = [&](const Tensor& x, const Tensor& weight) {
    const auto values = x.data<double>();
    const auto weights = weight.data<double>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isinf(values[i])) continue;  // lse of a query that sees nothing
      sum.value += values[i] * weights[i];
      sum.size += std::abs(values[i] * weights[i]);
    }
  };
  add(y.out, p.weight);
  add(y.lse, p.lse_weight);
  return sum;
}

// The slope of the loss when all elements of a tensor move at once, each up or down.
void expect_slope(Random& random, const Functions& f, FuzzedProblem& p, const Call& call,
                  const std::string& name, const Tensor& gradient) {
  constexpr double step = 1e-5;
  Tensor& tensor = p.tensors.at(name);
  const Tensor before = base::convert(tensor, DType::f64);
  const auto x = tensor.data<double>();
  const auto x0 = before.data<double>();
  const auto g = gradient.data<double>();
  ASSERT_EQ(gradient.shape(), tensor.shape());
  std::vector<double> direction(x.size());
  double slope = 0;
  double square = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    direction[i] = (random() & 64) != 0 ? 1 : -1;
    slope += direction[i] * g[i];
    square += g[i] * g[i];
  }
  const auto moved = [&](double by) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = x0[i] + by * direction[i];
    return loss(f, p, call);
  };
  const Loss up = moved(step);
  const Loss down = moved(-step);
  std::ranges::copy(x0, x.begin());
  // What rounding alone makes of the difference.
  const double noise = 1e-15 * up.size / step;
  ASSERT_NEAR((up.value - down.value) / (2 * step), slope, 1e-6 * std::sqrt(square) + noise)
      << name;
}

void expect_near(const Tensor& seen, const Tensor& exact, const std::string& name) {
  double largest = 1e-3;
  for (const double x : exact.data<double>()) largest = std::max(largest, std::abs(x));
  ASSERT_LE(test::largest_difference(seen, exact), 1e-10 * largest) << name;
}

void expect_like_the_reference(const Functions& f, const FuzzedProblem& p, const Backward& g) {
  const Forward y = f.reference.forward(p.inputs(), p.call);
  const Backward exact =
      f.reference.backward(p.inputs(), {y.out, y.lse}, p.weight, p.lse_weight, p.call);
  expect_near(g.dq, exact.dq, "q");
  expect_near(g.dk, exact.dk, "k");
  expect_near(g.dv, exact.dv, "v");
  for (const CaptureGradient& c : g.captures) expect_near(c.gradient, exact.of(c.name), c.name);
}

void check(Random& random, const Functions& f, FuzzedProblem& p, bool by_reference) {
  const Forward y = f.attention.forward(p.inputs(), p.call);
  const Backward g =
      f.attention.backward(p.inputs(), {y.out, y.lse}, p.weight, p.lse_weight, p.call);
  if (by_reference) expect_like_the_reference(f, p, g);
  Call call = p.call;
  call.layout = f.attention.layout(p.inputs(), p.call);
  expect_slope(random, f, p, call, ":q", g.dq);
  expect_slope(random, f, p, call, ":k", g.dk);
  expect_slope(random, f, p, call, ":v", g.dv);
  for (const CaptureGradient& c : g.captures) expect_slope(random, f, p, call, c.name, c.gradient);
}

TEST(GradientFuzz, AgainstDifferencesOfTheForwardPass) {
  int combinations = 0;
  for (int round = 0; round < test::fuzz_count(40); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    const Functions f = random_functions(random, seed);
    SCOPED_TRACE(f.text());
    for (int shape = 0; shape < shapes_per_mod; ++shape) {
      const Sizes s = random_sizes(random);
      SCOPED_TRACE(fmt::format("batch {} and {}, heads {} and {}, {} queries, {} keys", s.batch,
                               s.key_batch, s.heads, s.key_heads, s.queries, s.keys));
      FuzzedProblem p = fuzzed_problem(random, f, s);
      check(random, f, p, shape % 5 == 0);
      if (HasFatalFailure()) return;
      ++combinations;
    }
  }
  RecordProperty("combinations", combinations);
}

}  // namespace
}  // namespace treadle
