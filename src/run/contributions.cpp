// Contributions added to a gradient: fast where offsets are regular, checked elsewhere.
#include "run/contributions.h"

#include <algorithm>

#include "run/nonfinite.h"

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

// The offset of a pair. Those of pairs that contribute nothing may be far outside; the sum wraps.
template <class F>
std::int64_t offset_of(const Contributions<F>& given, std::int64_t k, std::int64_t q) {
  if (!given.separable) return given.offsets[k * given.width + q];
  const auto offset = [&](std::int64_t i) { return static_cast<std::uint64_t>(given.offsets[i]); };
  return static_cast<std::int64_t>(offset(q) + offset(given.width + k) - offset(0));
}

template <class F>
void add_checked(const Contributions<F>& given, F* sum, std::int64_t count) {
  for (std::int64_t k = 0; k < given.keys; ++k) {
    for (std::int64_t q = 0; q < given.queries; ++q) {
      const F value = given.values[k * given.width + q];
      const std::int64_t offset = offset_of(given, k, q);
      if (value != F{0} && offset >= 0 && offset < count) sum[offset] += value;
    }
  }
}

// One offset for all: lane by lane, then the lanes.
template <class F>
void add_to_one(const Contributions<F>& given, F* to) {
  constexpr std::int64_t most = 64;
  for (std::int64_t first = 0; first < given.queries; first += most) {
    F lanes[most] = {};
    const std::int64_t count = std::min(most, given.queries - first);
    for (std::int64_t k = 0; k < given.keys; ++k) {
      const F* values = given.values + k * given.width + first;
      for (std::int64_t q = 0; q < count; ++q) lanes[q] += values[q];
    }
    *to += sum_of(lanes, count);
  }
}

// Whether each offset is so far from the one before it.
bool equally_apart(const std::int64_t* offsets, std::int64_t count, std::int64_t apart) {
  for (std::int64_t i = 1; i < count; ++i)
    if (offsets[i] - offsets[i - 1] != apart) return false;
  return true;
}

// All offsets are inside; a key's offset is that of its pair with the first query.
template <class F>
void add_separable(const Contributions<F>& given, F* sum) {
  const std::int64_t* by_query = given.offsets;
  const std::int64_t* by_key = given.offsets + given.width;
  const std::int64_t queries = given.queries;
  const auto values = [&](std::int64_t k) { return given.values + k * given.width; };
  if (equally_apart(by_query, queries, 0)) {
    if (equally_apart(by_key, given.keys, 0)) return add_to_one(given, sum + by_key[0]);
    for (std::int64_t k = 0; k < given.keys; ++k) sum[by_key[k]] += sum_of(values(k), queries);
  } else if (equally_apart(by_query, queries, 1)) {
    for (std::int64_t k = 0; k < given.keys; ++k) {
      F* to = sum + by_key[k];
      const F* from = values(k);
      for (std::int64_t q = 0; q < queries; ++q) to[q] += from[q];
    }
  } else if (equally_apart(by_query, queries, -1)) {
    for (std::int64_t k = 0; k < given.keys; ++k) {
      F* to = sum + by_key[k];
      const F* from = values(k);
      for (std::int64_t q = 0; q < queries; ++q) to[-q] += from[q];
    }
  } else if (equally_apart(by_key, given.keys, 0)) {
    for (std::int64_t k = 0; k < given.keys; ++k)
      for (std::int64_t q = 0; q < queries; ++q)
        sum[by_key[0] + by_query[q] - by_query[0]] += values(k)[q];
  } else if (equally_apart(by_key, given.keys, 1)) {
    for (std::int64_t q = 0; q < queries; ++q) {
      F* to = sum + by_key[0] + by_query[q] - by_query[0];
      const F* from = given.values + q;
      for (std::int64_t k = 0; k < given.keys; ++k) to[k] += from[k * given.width];
    }
  } else {
    for (std::int64_t k = 0; k < given.keys; ++k)
      for (std::int64_t q = 0; q < queries; ++q)
        sum[by_key[k] + by_query[q] - by_query[0]] += values(k)[q];
  }
}

// Whether all offsets are inside, also those of pairs that contribute nothing.
template <class F>
bool all_inside(const Contributions<F>& given, std::int64_t count) {
  const std::int64_t* by_key = given.offsets + given.width;
  const auto [low_q, high_q] = std::minmax_element(given.offsets, given.offsets + given.queries);
  const auto [low_k, high_k] = std::minmax_element(by_key, by_key + given.keys);
  // Places far outside would overflow when added.
  constexpr std::int64_t far = std::int64_t{1} << 60;
  for (const std::int64_t* offset : {&*low_q, &*high_q, &*low_k, &*high_k})
    if (*offset < -far || *offset > far) return false;
  return *low_q + *low_k - given.offsets[0] >= 0 && *high_q + *high_k - given.offsets[0] < count;
}

}  // namespace

template <class F>
bool add_contributions(const Contributions<F>& given, F* sum, std::int64_t count) {
  if (given.separable && all_inside(given, count)) {
    add_separable(given, sum);
  } else {
    add_checked(given, sum, count);
  }
  bool nan = false;
  for (std::int64_t k = 0; k < given.keys; ++k)
    nan = nan || has_nan(given.values + k * given.width, given.queries);
  return !nan;
}

template bool add_contributions(const Contributions<float>&, float*, std::int64_t);
template bool add_contributions(const Contributions<double>&, double*, std::int64_t);

}  // namespace treadle::run
