// States of tiles, and two of them becoming one.
#include "run/tile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "special_values.h"

namespace treadle::run {
namespace {

using test::inf;

// One tile's state and its memory.
template <class F>
struct Held {
  std::int64_t width, value_dim;
  std::vector<std::byte> memory;
  TileState<F> state;

  Held(std::int64_t lanes, std::int64_t values) : width(lanes), value_dim(values) {
    Carver measure;
    TileState<F>::carve(measure, width, value_dim);
    memory.resize(measure.used());
    Carver carver(memory.data());
    state = TileState<F>::carve(carver, width, value_dim);
    state.clear(width, value_dim);
  }
  Held(const Held&) = delete;

  // What a lane means, in plain numbers: ln of its sum of weights, and its values.
  [[nodiscard]] double lse2(std::int64_t lane) const {
    return std::ceil(static_cast<double>(state.maximum[lane])) +
           std::log2(static_cast<double>(state.weight[lane]));
  }
  [[nodiscard]] double out(std::int64_t lane, std::int64_t d) const {
    return static_cast<double>(state.sums[d * width + lane]) /
           static_cast<double>(state.weight[lane]);
  }

  // A lane that has seen a key of this score (in powers of two) and these values.
  void see(std::int64_t lane, F score, F value) {
    const F old = state.maximum[lane];
    const F now = std::max(old, score);
    const F keep = old == -inf ? 0 : std::exp2(std::ceil(old) - std::ceil(now));
    const F weight = std::exp2(score - std::ceil(now));
    state.maximum[lane] = now;
    state.weight[lane] = state.weight[lane] * keep + weight;
    for (std::int64_t d = 0; d < value_dim; ++d) {
      F& sum = state.sums[d * width + lane];
      sum = sum * keep + weight * (value + static_cast<F>(d));
    }
  }
};

template <class F>
class TileStates : public testing::Test {};
using ComputeTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(TileStates, ComputeTypes);

TYPED_TEST(TileStates, AreCarvedWithoutOverlapAndAligned) {
  std::vector<std::byte> memory(1 << 16);
  Carver carver(memory.data());
  const auto state = TileState<TypeParam>::carve(carver, 24, 5);
  const auto at = [&](const TypeParam* p) {
    return reinterpret_cast<const std::byte*>(p) - memory.data();
  };
  const auto bytes = [](std::int64_t n) {
    return n * static_cast<std::int64_t>(sizeof(TypeParam));
  };
  EXPECT_EQ(at(state.maximum), 0);
  EXPECT_GE(at(state.weight), bytes(24));
  EXPECT_GE(at(state.sums), at(state.weight) + bytes(24));
  EXPECT_GE(static_cast<std::int64_t>(carver.used()), at(state.sums) + bytes(24 * 5));
  EXPECT_EQ(at(state.weight) % 64, 0);
  EXPECT_EQ(at(state.sums) % 64, 0);
}

TYPED_TEST(TileStates, ClearHasSeenNothing) {
  Held<TypeParam> held(8, 3);
  held.see(2, 1, 1);
  held.state.clear(8, 3);
  for (std::int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(held.state.maximum[i], -inf);
    EXPECT_EQ(held.state.weight[i], 0);
  }
  for (std::int64_t i = 0; i < 24; ++i) EXPECT_EQ(held.state.sums[i], 0);
}

// Every lane on its own: the weighted mean of what the two have seen. More lanes than are merged at
// a time.
TYPED_TEST(TileStates, MergeIsTheSoftmaxOfBoth) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> scores(-20, 20), values(-3, 3);
  for (const std::int64_t width : {1, 8, 63, 64, 65, 130}) {
    Held<TypeParam> total(width, 3), part(width, 3), all(width, 3);
    for (std::int64_t lane = 0; lane < width; ++lane) {
      for (int n = 0; n < 6; ++n) {
        const auto score = static_cast<TypeParam>(scores(random));
        const auto value = static_cast<TypeParam>(values(random));
        (n < 3 ? total : part).see(lane, score, value);
        all.see(lane, score, value);
      }
    }
    merge(total.state, part.state, width, 3);
    for (std::int64_t lane = 0; lane < width; ++lane) {
      EXPECT_EQ(total.state.maximum[lane], all.state.maximum[lane]);
      EXPECT_NEAR(total.lse2(lane), all.lse2(lane), 1e-5);
      for (std::int64_t d = 0; d < 3; ++d) EXPECT_NEAR(total.out(lane, d), all.out(lane, d), 1e-5);
    }
  }
}

TYPED_TEST(TileStates, MergeWithNothingChangesNoBit) {
  Held<TypeParam> seen(2, 2), nothing(2, 2), copy(2, 2);
  for (Held<TypeParam>* held : {&seen, &copy}) {
    held->see(0, TypeParam(-300.25), TypeParam(0.1));
    held->see(0, TypeParam(-299.5), TypeParam(0.7));
    held->see(1, TypeParam(5.5), TypeParam(-1.3));
  }
  const auto expect_same = [&](const TileState<TypeParam>& state) {
    for (std::int64_t i = 0; i < 2; ++i) {
      EXPECT_EQ(state.maximum[i], copy.state.maximum[i]);
      EXPECT_EQ(state.weight[i], copy.state.weight[i]);
    }
    for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(state.sums[i], copy.state.sums[i]);
  };
  merge(seen.state, nothing.state, 2, 2);
  expect_same(seen.state);
  merge(nothing.state, seen.state, 2, 2);
  expect_same(nothing.state);
}

TYPED_TEST(TileStates, MergeOfNothingAndNothing) {
  Held<TypeParam> a(3, 2), b(3, 2);
  merge(a.state, b.state, 3, 2);
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(a.state.maximum[i], -inf);
    EXPECT_EQ(a.state.weight[i], 0);
  }
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(a.state.sums[i], 0);
}

// Where one side is so far below that nothing of it is left, the other stays bit for bit.
TYPED_TEST(TileStates, MergeFarApart) {
  Held<TypeParam> low(1, 1), high(1, 1), copy(1, 1);
  low.see(0, TypeParam(-5000), TypeParam(3));
  high.see(0, TypeParam(0.5), TypeParam(0.3));
  copy.see(0, TypeParam(0.5), TypeParam(0.3));
  merge(low.state, high.state, 1, 1);
  EXPECT_EQ(low.state.weight[0], copy.state.weight[0]);
  EXPECT_EQ(low.state.sums[0], copy.state.sums[0]);
  low.state.clear(1, 1);
  low.see(0, TypeParam(-5000), TypeParam(3));
  merge(high.state, low.state, 1, 1);
  EXPECT_EQ(high.state.weight[0], copy.state.weight[0]);
  EXPECT_EQ(high.state.sums[0], copy.state.sums[0]);
}

TYPED_TEST(TileStates, MergeKeepsNan) {
  const auto nan = std::numeric_limits<TypeParam>::quiet_NaN();
  for (const bool first : {false, true}) {
    Held<TypeParam> a(2, 1), b(2, 1);
    a.see(0, 1, 1);
    b.see(0, 2, 1);
    a.see(1, 1, 1);
    b.see(1, 1, 1);
    Held<TypeParam>& spoilt = first ? a : b;
    spoilt.state.maximum[0] = spoilt.state.weight[0] = spoilt.state.sums[0] = nan;
    merge(a.state, b.state, 2, 1);
    EXPECT_TRUE(std::isnan(a.state.maximum[0]));
    EXPECT_TRUE(std::isnan(a.state.weight[0]));
    EXPECT_TRUE(std::isnan(a.state.sums[0]));
    EXPECT_EQ(a.state.maximum[1], 1);  // its neighbour does not mind
    EXPECT_EQ(a.state.weight[1], 2);
  }
}

TYPED_TEST(TileStates, MergeWithAnInfiniteScore) {
  Held<TypeParam> a(1, 1), b(1, 1);
  a.see(0, 1, 1);
  b.state.maximum[0] = inf;
  b.state.weight[0] = b.state.sums[0] = std::numeric_limits<TypeParam>::quiet_NaN();
  merge(a.state, b.state, 1, 1);
  EXPECT_EQ(a.state.maximum[0], inf);
  EXPECT_TRUE(std::isnan(a.state.weight[0]));
}

// Only the sums round: powers of two do not, so pieces that are exact stay exact in any order of
// maxima.
TYPED_TEST(TileStates, MergeScalesExactly) {
  Held<TypeParam> rising(1, 1), falling(1, 1);
  for (int n = 0; n < 20; ++n) {
    Held<TypeParam> up(1, 1), down(1, 1);
    up.see(0, TypeParam(n - 10), 1);
    down.see(0, TypeParam(9 - n), 1);
    merge(rising.state, up.state, 1, 1);
    merge(falling.state, down.state, 1, 1);
  }
  EXPECT_EQ(rising.state.weight[0], falling.state.weight[0]);
  EXPECT_EQ(static_cast<double>(rising.state.weight[0]), 2 - std::ldexp(1.0, -19));
}

}  // namespace
}  // namespace treadle::run
