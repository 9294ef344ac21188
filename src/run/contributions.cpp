// Contributions added to a gradient: fast where offsets are regular, checked elsewhere.
#include "run/contributions.h"

#include <algorithm>

namespace treadle::run {
namespace {

// Whether each offset is so far from the one before it.
bool equally_apart(const std::int64_t* offsets, std::int64_t count, std::int64_t apart) {
  for (std::int64_t i = 1; i < count; ++i)
    if (offsets[i] - offsets[i - 1] != apart) return false;
  return true;
}

}  // namespace

template <class F>
QueryOffsets query_offsets(const Contributions<F>& given) {
  using Step = QueryOffsets::Step;
  if (given.offsets != nullptr) return {};
  constexpr std::int64_t most_between = 64;  // unused elements for each that is used
  QueryOffsets found;
  bool same = true, up = true, down = true;
  for (std::int64_t q = 0; q < given.queries; ++q) {
    const std::int64_t from_first = from_first_query(given, q);
    same = same && from_first == 0;
    up = up && from_first == q;
    down = down && from_first == -q;
    found.low = std::min(found.low, from_first);
    found.high = std::max(found.high, from_first);
  }
  found.step = same ? Step::same : up ? Step::up : down ? Step::down : Step::any;
  const std::int64_t most = most_between * given.queries;
  found.regular = found.low > -most && found.high < most;
  return found;
}

// Queries far apart and keys side by side, as in bias[q, kv]: a query at a time writes to one place
// of the memory.
template <class F>
void add_apart(const Contributions<F>& given, const QueryOffsets& queries, std::int64_t begin,
               std::int64_t end, F* sum, std::int64_t count) {
  const auto [low, high] = std::minmax_element(given.by_key + begin, given.by_key + end);
  // No gradient has so many elements: sums of two such numbers do not overflow.
  constexpr std::int64_t far = std::int64_t{1} << 60;
  const bool inside = queries.low > -far && queries.high < far && is_inside(*low, queries, count) &&
                      is_inside(*high, queries, count);
  if (inside && queries.step == QueryOffsets::Step::any &&
      equally_apart(given.by_key + begin, end - begin, 1)) {
    for (std::int64_t q = 0; q < given.queries; ++q) {
      F* to = sum + given.by_key[begin] + from_first_query(given, q);
      const F* from = given.values + begin * given.width + q;
      for (std::int64_t k = 0; k < end - begin; ++k) to[k] += from[k * given.width];
    }
    return;
  }
  for (std::int64_t k = begin; k < end; ++k)
    add_key(given, queries, k, sum, count, [](std::int64_t, std::int64_t) {});
}

#define TREADLE_INSTANTIATE(F)                                                        \
  template QueryOffsets query_offsets(const Contributions<F>&);                       \
  template void add_apart(const Contributions<F>&, const QueryOffsets&, std::int64_t, \
                          std::int64_t, F*, std::int64_t);
TREADLE_INSTANTIATE(float)
TREADLE_INSTANTIATE(double)
#undef TREADLE_INSTANTIATE

}  // namespace treadle::run
