// Every function of floats over dense sweeps, within 4 ulp of the interpreter in fp64.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "agreement.h"
#include "fuzz.h"
#include "ir/builder.h"
#include "ir/interpret.h"
#include "random_graph.h"

namespace treadle::test {
namespace {

using ir::Input;
using ir::Op;

constexpr double allowed = 4;

double rounded(double value, DType real) {
  return real == DType::f32 ? static_cast<double>(static_cast<float>(value)) : value;
}

// All sizes, by their bits; then where functions bend.
std::vector<double> random_reals(Random& random, DType real, int count) {
  std::vector<double> points;
  std::uniform_int_distribution<std::uint64_t> bits;
  for (int i = 0; i < count; ++i) {
    switch (i % 4) {
      case 0:
        points.push_back(real == DType::f32 ? static_cast<double>(std::bit_cast<float>(
                                                  static_cast<std::uint32_t>(bits(random))))
                                            : std::bit_cast<double>(bits(random)));
        break;
      case 1: points.push_back(random_real(random, -2, 2)); break;
      case 2: points.push_back(random_real(random, -160, 160)); break;
      case 3:
        points.push_back(
            std::ldexp(random_real(random, -2, 2), static_cast<int>(random_int(random, -40, 12))));
        break;
    }
  }
  std::ranges::shuffle(points, random);
  return points;
}

// Operands of a function. The first come from seeds, per_seed of each; then what is special.
struct Sweep {
  static constexpr int per_seed = 5000;
  std::vector<double> x, y;
  int seeds = fuzz_count(20);

  explicit Sweep(DType real) {
    for (int round = 0; round < seeds; ++round) {
      Random random = rng(fuzz_seed(round));
      for (std::vector<double>* points : {&x, &y}) {
        const std::vector<double> more = random_reals(random, real, per_seed);
        points->insert(points->end(), more.begin(), more.end());
      }
    }
    std::vector<double> special(special_reals.begin(), special_reals.end());
    for (double at = -1100; at <= 1100; at += 0.5) special.push_back(at);
    x.insert(x.end(), special.begin(), special.end());
    Random random = rng(7);
    std::ranges::shuffle(special, random);
    y.insert(y.end(), special.begin(), special.end());
    for (double& value : x) value = rounded(value, real);
    for (double& value : y) value = rounded(value, real);
  }

  Sweep(std::vector<double> xs, std::vector<double> ys)
      : x(std::move(xs)), y(std::move(ys)), seeds(0) {}

  // Where the pair at i comes from.
  [[nodiscard]] std::string origin(std::size_t i) const {
    const auto round = static_cast<int>(i) / per_seed;
    return round < seeds ? seed_text(fuzz_seed(round)) : "a fixed pair";
  }
};

// The largest error of an operation over all points, in units of the last place.
double worst_error(const ir::OpInfo& row, const Setting& setting, const Sweep& sweep) {
  const std::vector<double>& x = sweep.x;
  const std::vector<double>& y = sweep.y;
  ir::Builder make;
  std::vector<ir::NodeId> operands{make.input(Input::score)};
  if (row.arity == 2) operands.push_back(make.input(Input::grad));
  const ir::Graph graph = make.finish({make.apply(row.op, operands)});
  const ModRunner run(graph, setting);

  Tile tile;
  for (int i = 0; i < setting.width(); ++i) tile.q.push_back(i);
  const auto keys = static_cast<int>(x.size() / tile.q.size());
  for (int i = 0; i < keys; ++i) tile.keys.push_back(i);
  tile.score.assign(x.begin(), x.begin() + tile.pairs());
  tile.grad.assign(y.begin(), y.begin() + tile.pairs());
  const std::vector<double> got = run(tile, {}).reals[0];
  ir::Interpreter<double> right(graph, {});
  right({.score = tile.score, .grad = tile.grad}, tile.pairs());

  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    double want = right.reals(0)[i];
    if (std::isinf(rounded(want, setting.real)) || std::isinf(got[i]))
      want = rounded(want, setting.real);
    const double error = ulps(got[i], want, setting.real);
    worst = std::max(worst, error);
    if (error > allowed) {
      ADD_FAILURE() << fmt::format("{}({}, {}) is {}, should be {}: {} ulp; {}", row.text, x[i],
                                   y[i], got[i], want, error, sweep.origin(i));
      return worst;
    }
  }
  return worst;
}

class Math : public testing::TestWithParam<plan::Target> {};
INSTANTIATE_TEST_SUITE_P(Targets, Math, testing::ValuesIn(targets_here()), name_of_target);

void sweep_all(const Setting& setting) {
  SCOPED_TRACE(to_text(setting));
  const Sweep sweep(setting.real);
  for (const ir::OpInfo& row : ir::op_table()) {
    if (row.rule != ir::Rule::real) continue;
    const double worst = worst_error(row, setting, sweep);
    const char* from = setting.target.libmvec ? "libmvec" : "libm";
    testing::Test::RecordProperty(fmt::format("{}_{}_{}", row.text, name_of(setting.real), from),
                                  fmt::format("{:.2f}", worst));
  }
}

TEST_P(Math, IsWithin4Ulp) {
  for (const DType real : {DType::f32, DType::f64}) {
    Setting setting{.target = GetParam(), .facts = {.reads = plan::Reads::proven}, .real = real};
    sweep_all(setting);
    if (!setting.target.libmvec) continue;
    setting.target.libmvec = false;
    sweep_all(setting);
  }
}

// The kernel's lanes may be those of another float than the graph's.
TEST_P(Math, WorksForAnyNumberOfLanes) {
  for (const DType compute : {DType::f32, DType::f64}) {
    for (const DType real : {DType::f32, DType::f64}) {
      const Setting setting{.target = GetParam(),
                            .facts = {.reads = plan::Reads::proven},
                            .compute = compute,
                            .real = real};
      SCOPED_TRACE(to_text(setting));
      std::vector<double> x, y;
      for (int i = 0; i < 64; ++i) {
        x.push_back(rounded(0.03 * i, real));
        y.push_back(rounded(1.5 - 0.02 * i, real));
      }
      for (const ir::OpInfo& row : ir::op_table()) {
        if (row.rule == ir::Rule::real) worst_error(row, setting, Sweep(x, y));
      }
    }
  }
}

TEST_P(Math, Exp2OfWholeNumbersIsExact) {
  ir::Builder make;
  const ir::Graph graph = make.finish({make(Op::exp2, make.input(Input::score))});
  const Setting setting{.target = GetParam(), .facts = {.reads = plan::Reads::proven}};
  const Outcomes got = ModRunner(graph, setting)(
      {.q = {0, 1}, .keys = {0, 1, 2}, .score = {0.0, -0.0, 1.0, -1.0, 127.0, -149.0}}, {});
  EXPECT_EQ(got.reals[0], (std::vector<double>{1, 1, 2, 0.5, 0x1p127, 0x1p-149}));
}

}  // namespace
}  // namespace treadle::test
