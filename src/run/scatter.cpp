#include "run/scatter.h"

#include <algorithm>

#include "run/all_numbers.h"

namespace treadle::run {
namespace {

// In four chains, whose order is fixed.
template <class F>
F sum_of(const F* values, std::int64_t count) {
  F chains[4] = {0, 0, 0, 0};
  const std::int64_t whole = count / 4 * 4;
  for (std::int64_t i = 0; i < whole; i += 4)
    for (std::int64_t j = 0; j < 4; ++j) chains[j] += values[i + j];
  for (std::int64_t i = whole; i < count; ++i) chains[i - whole] += values[i];
  return (chains[0] + chains[1]) + (chains[2] + chains[3]);
}

// The place of a pair. Places of pairs that give nothing may be far outside, and the sum wraps.
template <class F>
std::int64_t place_of(const Gifts<F>& gifts, std::int64_t k, std::int64_t q) {
  if (!gifts.separable) return gifts.places[k * gifts.width + q];
  const auto place = [&](std::int64_t i) { return static_cast<std::uint64_t>(gifts.places[i]); };
  return static_cast<std::int64_t>(place(q) + place(gifts.width + k) - place(0));
}

template <class F>
void add_checked(const Gifts<F>& gifts, F* sum, std::int64_t count) {
  for (std::int64_t k = 0; k < gifts.keys; ++k) {
    for (std::int64_t q = 0; q < gifts.queries; ++q) {
      const F amount = gifts.amounts[k * gifts.width + q];
      const std::int64_t place = place_of(gifts, k, q);
      if (amount != F{0} && place >= 0 && place < count) sum[place] += amount;
    }
  }
}

// One place for all: lane by lane, then the lanes.
template <class F>
void add_to_one(const Gifts<F>& gifts, F* to) {
  constexpr std::int64_t most = 64;
  for (std::int64_t first = 0; first < gifts.queries; first += most) {
    F lanes[most] = {};
    const std::int64_t count = std::min(most, gifts.queries - first);
    for (std::int64_t k = 0; k < gifts.keys; ++k) {
      const F* amounts = gifts.amounts + k * gifts.width + first;
      for (std::int64_t q = 0; q < count; ++q) lanes[q] += amounts[q];
    }
    *to += sum_of(lanes, count);
  }
}

// Whether each place is so far from the one before it.
bool equally_apart(const std::int64_t* places, std::int64_t count, std::int64_t apart) {
  for (std::int64_t i = 1; i < count; ++i)
    if (places[i] - places[i - 1] != apart) return false;
  return true;
}

// All places are inside; a key's place is that of its pair with the first query.
template <class F>
void add_separable(const Gifts<F>& gifts, F* sum) {
  const std::int64_t* by_query = gifts.places;
  const std::int64_t* by_key = gifts.places + gifts.width;
  const std::int64_t queries = gifts.queries;
  const auto amounts = [&](std::int64_t k) { return gifts.amounts + k * gifts.width; };
  if (equally_apart(by_query, queries, 0)) {
    if (equally_apart(by_key, gifts.keys, 0)) return add_to_one(gifts, sum + by_key[0]);
    for (std::int64_t k = 0; k < gifts.keys; ++k) sum[by_key[k]] += sum_of(amounts(k), queries);
  } else if (equally_apart(by_query, queries, 1)) {
    for (std::int64_t k = 0; k < gifts.keys; ++k) {
      F* to = sum + by_key[k];
      const F* from = amounts(k);
      for (std::int64_t q = 0; q < queries; ++q) to[q] += from[q];
    }
  } else if (equally_apart(by_query, queries, -1)) {
    for (std::int64_t k = 0; k < gifts.keys; ++k) {
      F* to = sum + by_key[k];
      const F* from = amounts(k);
      for (std::int64_t q = 0; q < queries; ++q) to[-q] += from[q];
    }
  } else if (equally_apart(by_key, gifts.keys, 0)) {
    for (std::int64_t k = 0; k < gifts.keys; ++k)
      for (std::int64_t q = 0; q < queries; ++q)
        sum[by_key[0] + by_query[q] - by_query[0]] += amounts(k)[q];
  } else if (equally_apart(by_key, gifts.keys, 1)) {
    for (std::int64_t q = 0; q < queries; ++q) {
      F* to = sum + by_key[0] + by_query[q] - by_query[0];
      const F* from = gifts.amounts + q;
      for (std::int64_t k = 0; k < gifts.keys; ++k) to[k] += from[k * gifts.width];
    }
  } else {
    for (std::int64_t k = 0; k < gifts.keys; ++k)
      for (std::int64_t q = 0; q < queries; ++q)
        sum[by_key[k] + by_query[q] - by_query[0]] += amounts(k)[q];
  }
}

// Whether all places are inside, of pairs that give something and of those that do not.
template <class F>
bool all_inside(const Gifts<F>& gifts, std::int64_t count) {
  const std::int64_t* by_key = gifts.places + gifts.width;
  const auto [low_q, high_q] = std::minmax_element(gifts.places, gifts.places + gifts.queries);
  const auto [low_k, high_k] = std::minmax_element(by_key, by_key + gifts.keys);
  // Places far outside would overflow when added.
  constexpr std::int64_t far = std::int64_t{1} << 60;
  for (const std::int64_t* place : {&*low_q, &*high_q, &*low_k, &*high_k})
    if (*place < -far || *place > far) return false;
  return *low_q + *low_k - gifts.places[0] >= 0 && *high_q + *high_k - gifts.places[0] < count;
}

}  // namespace

template <class F>
bool scatter(const Gifts<F>& gifts, F* sum, std::int64_t count) {
  if (gifts.separable && all_inside(gifts, count)) {
    add_separable(gifts, sum);
  } else {
    add_checked(gifts, sum, count);
  }
  bool numbers = true;
  for (std::int64_t k = 0; k < gifts.keys; ++k)
    numbers = numbers && all_numbers(gifts.amounts + k * gifts.width, gifts.queries);
  return numbers;
}

template bool scatter(const Gifts<float>&, float*, std::int64_t);
template bool scatter(const Gifts<double>&, double*, std::int64_t);

}  // namespace treadle::run
