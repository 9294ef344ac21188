// Amounts added at places: every form the places can have, against a plain loop. Amounts are small
// integers, so sums are exact in any order.
#include "run/contributions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace treadle::run {
namespace {

using Places = std::vector<std::int64_t>;

// What a kernel leaves, with a lane's worth of rubbish behind the queries.
template <class F>
struct Given {
  std::int64_t keys, queries, width;
  std::vector<F> amounts;
  Places places;
  bool separable = false;

  Given(std::int64_t key_count, std::int64_t query_count)
      : keys(key_count),
        queries(query_count),
        width(query_count + 3),
        amounts(static_cast<std::size_t>(keys * width), std::numeric_limits<F>::quiet_NaN()) {
    std::mt19937_64 random(static_cast<std::uint64_t>(keys * 100 + queries));
    for (std::int64_t k = 0; k < keys; ++k)
      for (std::int64_t q = 0; q < queries; ++q)
        amount(k, q) = static_cast<F>(static_cast<int>(random() % 17) - 8);
  }

  F& amount(std::int64_t k, std::int64_t q) {
    return amounts[static_cast<std::size_t>(k * width + q)];
  }

  // A place for each query with the first key, and for each key with the first query.
  void by_query_and_key(const Places& by_query, const Places& by_key) {
    separable = true;
    places = by_query;
    places.resize(static_cast<std::size_t>(width), std::int64_t{1} << 40);
    places.insert(places.end(), by_key.begin(), by_key.end());
  }
  // A place for each pair.
  void by_pair(const std::function<std::int64_t(std::int64_t k, std::int64_t q)>& place) {
    separable = false;
    places.assign(static_cast<std::size_t>(keys * width), std::int64_t{1} << 40);
    for (std::int64_t k = 0; k < keys; ++k)
      for (std::int64_t q = 0; q < queries; ++q)
        places[static_cast<std::size_t>(k * width + q)] = place(k, q);
  }
  [[nodiscard]] std::int64_t place(std::int64_t k, std::int64_t q) const {
    const auto at = [&](std::int64_t i) { return places[static_cast<std::size_t>(i)]; };
    return separable ? at(q) + (at(width + k) - at(0)) : at(k * width + q);
  }

  // Key by key, or all at once.
  void run(std::vector<F>& sum, bool apart) const {
    const Contributions<F> all{.values = amounts.data(),
                               .offsets = separable ? nullptr : places.data(),
                               .by_query = separable ? places.data() : nullptr,
                               .by_key = separable ? places.data() + width : nullptr,
                               .queries = queries,
                               .width = width};
    // On both sides -0, which even a zero that is added would change.
    constexpr std::size_t guard = 128;
    std::vector<F> guarded(sum.size() + 2 * guard, -F{0});
    std::ranges::copy(sum, guarded.begin() + guard);
    F* to = guarded.data() + guard;
    const auto count = static_cast<std::int64_t>(sum.size());
    const QueryOffsets offsets = query_offsets(all);
    if (apart) {
      add_apart(all, offsets, 0, keys, to, count);
    } else {
      std::vector<char> announced(sum.size());
      for (std::int64_t k = 0; k < keys; ++k) {
        add_key(all, offsets, k, to, count, [&](std::int64_t first, std::int64_t last) {
          ASSERT_TRUE(first >= 0 && first <= last && last < count);
          std::fill(announced.begin() + first, announced.begin() + last + 1, char{1});
        });
      }
      for (std::size_t i = 0; i < sum.size(); ++i)
        EXPECT_TRUE(announced[i] != 0 || to[i] == sum[i]) << i << " changed unannounced";
    }
    std::copy_n(guarded.begin() + guard, sum.size(), sum.begin());
    for (std::size_t i = 0; i < guard; ++i) {
      EXPECT_TRUE(std::signbit(guarded[i])) << guard - i << " before the sums";
      EXPECT_TRUE(std::signbit(guarded[guard + sum.size() + i])) << i << " behind the sums";
    }
  }

  // Into `count` sums that were not zero.
  void expect_as_a_plain_loop(std::size_t count) {
    std::vector<F> sums(count);
    for (std::size_t i = 0; i < count; ++i) sums[i] = static_cast<F>(i % 5);
    std::vector<F> expected = sums;
    for (std::int64_t k = 0; k < keys; ++k) {
      for (std::int64_t q = 0; q < queries; ++q) {
        const std::int64_t to = place(k, q);
        if (to >= 0 && to < static_cast<std::int64_t>(count))
          expected[static_cast<std::size_t>(to)] += amount(k, q);
      }
    }
    for (const bool apart : {false, true}) {
      if (apart && !separable) continue;
      std::vector<F> sum = sums;
      run(sum, apart);
      EXPECT_EQ(sum, expected) << keys << " keys, " << queries << " queries";
    }
  }
};

Places steps(std::int64_t first, std::int64_t count, std::int64_t apart) {
  Places places;
  for (std::int64_t i = 0; i < count; ++i) places.push_back(first + i * apart);
  return places;
}

template <class F>
class Scatter : public testing::Test {
 protected:
  struct Size {
    std::int64_t keys, queries;
  };
  // Whole chains and lanes, some over, and a single one.
  static constexpr Size sizes[] = {{1, 1},  {1, 7},   {5, 1},  {3, 4},
                                   {9, 24}, {13, 64}, {4, 65}, {2, 130}};
  using Place = std::int64_t (*)(std::int64_t);

  // The places of pairs are by_query(q) + by_key(k).
  void expect_separable(Place by_query, Place by_key, std::size_t count) {
    for (const Size& size : sizes) {
      Given<F> given(size.keys, size.queries);
      Places of_queries, of_keys;
      for (std::int64_t q = 0; q < size.queries; ++q) of_queries.push_back(by_query(q) + by_key(0));
      for (std::int64_t k = 0; k < size.keys; ++k) of_keys.push_back(by_query(0) + by_key(k));
      given.by_query_and_key(of_queries, of_keys);
      given.expect_as_a_plain_loop(count);
    }
  }
};
using GradientTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(Scatter, GradientTypes);

std::int64_t third(std::int64_t) { return 3; }
std::int64_t itself(std::int64_t i) { return i; }
std::int64_t down(std::int64_t i) { return 200 - i; }
std::int64_t scattered(std::int64_t i) { return i * 37 % 50; }
std::int64_t thrice(std::int64_t i) { return 3 * i; }

TYPED_TEST(Scatter, AtOnePlace) { this->expect_separable(third, third, 7); }

TYPED_TEST(Scatter, ByKeyOnly) {
  this->expect_separable(third, itself, 16);
  this->expect_separable(third, scattered, 53);
  this->expect_separable(third, [](std::int64_t k) { return k / 2; }, 10);
}

TYPED_TEST(Scatter, ByQueryOnly) {
  this->expect_separable(scattered, third, 53);
  this->expect_separable([](std::int64_t q) { return q % 3; }, third, 6);
}

TYPED_TEST(Scatter, QueriesSideBySide) {
  this->expect_separable(itself, third, 133);
  this->expect_separable(itself, [](std::int64_t k) { return k * 130; }, 1690);
  this->expect_separable(itself, scattered, 180);
  this->expect_separable(itself, [](std::int64_t k) { return 12 - k; }, 142);
}

TYPED_TEST(Scatter, QueriesSideBySideBackwards) {
  this->expect_separable(down, third, 204);
  this->expect_separable(down, itself, 213);
  this->expect_separable(down, scattered, 250);
}

TYPED_TEST(Scatter, KeysSideBySide) {
  this->expect_separable(thrice, itself, 400);
  this->expect_separable(scattered, itself, 62);
  this->expect_separable([](std::int64_t q) { return q / 3 * 13; }, itself, 572);
}

TYPED_TEST(Scatter, AnythingOfQueryPlusAnythingOfKey) {
  this->expect_separable(thrice, thrice, 424);
  this->expect_separable(scattered, scattered, 99);
  this->expect_separable(thrice, [](std::int64_t k) { return 12 - k; }, 400);
}

TYPED_TEST(Scatter, AnyPlaceForAPair) {
  for (const auto& [keys, queries] : this->sizes) {
    Given<TypeParam> given(keys, queries);
    given.by_pair([](std::int64_t k, std::int64_t q) { return (k * 31 + q * q) % 40; });
    given.expect_as_a_plain_loop(40);
  }
}

// As of pairs that a mask hides: places just outside, on either side, and the amounts zero.
TYPED_TEST(Scatter, ZerosMayBeOutside) {
  for (const bool separable : {false, true}) {
    for (const std::int64_t first : {-4, 4}) {
      Given<TypeParam> given(6, 9);
      if (separable) {
        given.by_query_and_key(steps(first, 9, 1), steps(first, 6, 1));
      } else {
        given.by_pair([&](std::int64_t k, std::int64_t q) { return first + q + k; });
      }
      for (std::int64_t k = 0; k < 6; ++k)
        for (std::int64_t q = 0; q < 9; ++q)
          if (given.place(k, q) < 0 || given.place(k, q) >= 12) given.amount(k, q) = 0;
      given.expect_as_a_plain_loop(12);
    }
  }
}

// The first query's own places are outside, those of others inside.
TYPED_TEST(Scatter, TheFirstQueryOutside) {
  Given<TypeParam> given(4, 5);
  given.by_query_and_key({-100, 0, 1, 2, 3}, {-100, -96, -92, -88});
  for (std::int64_t k = 0; k < 4; ++k) given.amount(k, 0) = 0;
  given.expect_as_a_plain_loop(16);
}

// Far enough that sums of places leave the 64 bits.
TYPED_TEST(Scatter, ZerosMayBeFarOutside) {
  constexpr std::int64_t far = std::int64_t{1} << 62;
  for (const std::int64_t place : {far, -far, 2 * (far - 1), -2 * far}) {
    for (const bool of_query : {false, true}) {
      Given<TypeParam> given(3, 4);
      Places by_query = steps(0, 4, 1), by_key = steps(0, 3, 4);
      if (of_query) {
        by_query[2] = place;
        for (std::int64_t k = 0; k < 3; ++k) given.amount(k, 2) = 0;
      } else {
        by_key[1] = place;
        for (std::int64_t q = 0; q < 4; ++q) given.amount(1, q) = 0;
      }
      given.by_query_and_key(by_query, by_key);
      for (const bool apart : {false, true}) {
        std::vector<TypeParam> sum(12);
        given.run(sum, apart);
        for (std::int64_t k = 0; k < 3; ++k)
          for (std::int64_t q = 0; q < 4; ++q)
            EXPECT_EQ(sum[static_cast<std::size_t>(4 * k + q)], given.amount(k, q));
      }
    }
  }
}

// Infinities are numbers. That nothing is added beyond the queries shows in every test here: their
// lanes hold NaN.
TYPED_TEST(Scatter, KeepsInfinities) {
  Given<TypeParam> given(2, 3);
  given.by_query_and_key(steps(0, 3, 1), steps(0, 2, 3));
  given.amount(1, 1) = std::numeric_limits<TypeParam>::infinity();
  std::vector<TypeParam> sum(6);
  given.run(sum, false);
  EXPECT_TRUE(std::isinf(sum[4]));
  EXPECT_EQ(sum[3], given.amount(1, 0));
}

}  // namespace
}  // namespace treadle::run
