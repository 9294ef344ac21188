// The kernel that merges states of tiles: merge() of run/tile.h bit by bit, on every target that runs
// here.
#include "plan/merge_kernel.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "fuzz.h"
#include "jit/engine.h"
#include "run/tile.h"
#include "special_values.h"

namespace treadle {
namespace {

using test::inf;

// Maxima next to every border: nothing seen, powers that underflow, numbers that are no longer
// whole, zeros of both signs.
template <class F>
std::vector<F> maxima() {
  using Limits = std::numeric_limits<F>;
  constexpr int lowest = Limits::min_exponent;
  std::vector<F> all{F(-inf),
                     F(inf),
                     Limits::quiet_NaN(),
                     0,
                     F(-0.0),
                     F(0.25),
                     F(-0.25),
                     1,
                     F(-1),
                     F(5.5),
                     F(-300.25),
                     F(1e5),
                     F(-1e5),
                     F(1e30),
                     F(-1e30),
                     Limits::max(),
                     Limits::lowest(),
                     Limits::min(),
                     -Limits::denorm_min()};
  for (const int apart : {-2, -1, 0, 1}) {
    all.push_back(F(lowest + apart));
    all.push_back(F(lowest + apart) + F(0.5));
  }
  return all;
}

template <class F>
std::vector<F> numbers() {
  using Limits = std::numeric_limits<F>;
  return {0,
          F(-0.0),
          1,
          F(1.7),
          F(-3.3),
          Limits::denorm_min(),
          Limits::min(),
          Limits::max(),
          Limits::lowest(),
          F(inf),
          F(-inf),
          Limits::quiet_NaN()};
}

// A state in memory without room to spare.
template <class F>
struct HeldState {
  std::vector<F> maximum, weight, sums;

  run::TileState<F> state() { return {maximum.data(), weight.data(), sums.data()}; }
};

template <class F>
bool same_lanes(const std::vector<F>& a, const std::vector<F>& b) {
  return std::ranges::equal(a, b, [](F x, F y) {
    return std::isnan(x) ? std::isnan(y) : std::memcmp(&x, &y, sizeof(F)) == 0;
  });
}

// Merges two states of a tile with the kernel, and compares.
template <class F>
class MergeRun {
 public:
  MergeRun(const plan::MergeSpec& spec, const plan::Kernel<plan::MergeArgs>& kernel)
      : spec_(spec), kernel_(kernel) {}

  void expect_like_the_definition(HeldState<F> total, HeldState<F> part) const {
    HeldState<F> expected = total;
    const HeldState<F> before = total, part_before = part;
    run::merge(expected.state(), part.state(), spec_.width, spec_.value_dim);
    kernel_({.maximum = total.maximum.data(),
             .weight = total.weight.data(),
             .sums = total.sums.data(),
             .part_maximum = part.maximum.data(),
             .part_weight = part.weight.data(),
             .part_sums = part.sums.data()});
    ASSERT_TRUE(same_lanes(part.maximum, part_before.maximum));
    ASSERT_TRUE(same_lanes(part.sums, part_before.sums));
    for (std::size_t i = 0; i < before.maximum.size(); ++i) {
      const std::string lane =
          fmt::format("lane {} of {}: maxima {} and {}, weights {} and {}", i, spec_.width,
                      before.maximum[i], part.maximum[i], before.weight[i], part.weight[i]);
      ASSERT_TRUE(same_lanes<F>({total.maximum[i]}, {expected.maximum[i]}))
          << lane << ": " << total.maximum[i] << " instead of " << expected.maximum[i];
      ASSERT_TRUE(same_lanes<F>({total.weight[i]}, {expected.weight[i]}))
          << lane << ": " << total.weight[i] << " instead of " << expected.weight[i];
    }
    ASSERT_TRUE(same_lanes(total.sums, expected.sums)) << "sums";
  }

  // Every pair of maxima, in every lane of the last vector or so.
  void every_pair_of_maxima(std::mt19937_64& random) const {
    const std::vector<F> all = maxima<F>();
    for (std::size_t first = 0; first < all.size(); ++first) {
      HeldState<F> total = random_state(random), part = random_state(random);
      for (std::size_t i = 0; i < all.size(); ++i) {
        for (std::size_t lane = 0; lane < total.maximum.size(); ++lane) {
          total.maximum[lane] = all[first];
          part.maximum[lane] = all[(i + lane) % all.size()];
        }
        expect_like_the_definition(total, part);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }

  // Anything anywhere.
  [[nodiscard]] HeldState<F> random_state(std::mt19937_64& random) const {
    const auto draw = [&](std::vector<F>& to, std::int64_t count, const std::vector<F>& specials,
                          double reach) {
      for (std::int64_t i = 0; i < count; ++i) {
        const bool special = random() % 4 == 0;
        to.push_back(special ? specials[random() % specials.size()]
                             : static_cast<F>(test::random_real(random, -reach, reach)));
      }
    };
    HeldState<F> made;
    draw(made.maximum, spec_.width, maxima<F>(), random() % 2 == 0 ? 3 : 200);
    draw(made.weight, spec_.width, numbers<F>(), 30);
    draw(made.sums, spec_.width * spec_.value_dim, numbers<F>(), 30);
    return made;
  }

 private:
  const plan::MergeSpec& spec_;
  const plan::Kernel<plan::MergeArgs>& kernel_;
};

class MergeKernel : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Runnable, MergeKernel, testing::ValuesIn(plan::runnable_targets()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

template <class F>
void fuzz_merges(const std::string& target, DType compute) {
  jit::Engine engine({});
  const plan::Target machine = plan::find_target(target);
  for (const std::int64_t vectors : {1, 2, 3}) {
    for (const std::int64_t value_dim : {1, 7, 64}) {
      const plan::MergeSpec spec{machine, compute, vectors * machine.lanes(compute), value_dim};
      SCOPED_TRACE(fmt::format("{} lanes of {}, value dim {}", spec.width, name_of(compute),
                               spec.value_dim));
      const plan::Kernel<plan::MergeArgs> kernel = engine.get(spec);
      const MergeRun<F> run(spec, kernel);
      std::mt19937_64 fixed(1);
      if (value_dim == 1) run.every_pair_of_maxima(fixed);
      for (int round = 0; round < test::fuzz_count(200); ++round) {
        const std::uint64_t seed = test::fuzz_seed(round);
        SCOPED_TRACE(test::seed_text(seed));
        std::mt19937_64 random = test::rng(seed);
        run.expect_like_the_definition(run.random_state(random), run.random_state(random));
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(MergeKernel, IsTheDefinitionInF32) { fuzz_merges<float>(GetParam(), DType::f32); }

TEST_P(MergeKernel, IsTheDefinitionInF64) { fuzz_merges<double>(GetParam(), DType::f64); }

}  // namespace
}  // namespace treadle
