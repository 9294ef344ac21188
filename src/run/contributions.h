// Contributions of pairs to the gradient of a capture, added where they belong.
//
// Additions to one element have an order that follows from the tile and its keys alone: key by key,
// and for a key query by query. How keys were put into blocks does not show.
#pragma once

#include <cstdint>

namespace treadle::run {

// Those of some keys and a tile of queries, with their offsets in the gradient, in elements. A
// value of zero may have an offset outside.
template <class F>
struct Contributions {
  const F* values = nullptr;               // [keys][width]
  const std::int64_t* offsets = nullptr;   // [keys][width]; null if they are separable:
  const std::int64_t* by_query = nullptr;  // of the queries, with some key
  const std::int64_t* by_key = nullptr;    // of the keys, with the first query
  std::int64_t queries = 0;                // lanes from `queries` on contribute nothing
  std::int64_t width = 0;
};

// How far a tile's queries are from the first of them, in elements: the same for all keys.
struct QueryOffsets {
  enum class Step : std::uint8_t { same, up, down, any };  // from a query to the next
  Step step = Step::any;
  std::int64_t low = 0, high = 0;  // the lowest and the highest
  bool regular = false;            // known, and close together
};
template <class F>
QueryOffsets query_offsets(const Contributions<F>& given);

// Adds those of key k. `before(first, last)` is called before elements first .. last change.
template <class F, class Before>
void add_key(const Contributions<F>& given, const QueryOffsets& queries, std::int64_t k, F* sum,
             std::int64_t count, const Before& before);

// Adds those of keys begin .. end, of which no two meet at one element, in the fastest order.
template <class F>
void add_apart(const Contributions<F>& given, const QueryOffsets& queries, std::int64_t begin,
               std::int64_t end, F* sum, std::int64_t count);

// --- how they are added ------------------------------------------------------------------------

// In four chains, whose order is fixed.
template <class F>
F sum_of_lanes(const F* values, std::int64_t count) {
  F chains[4] = {0, 0, 0, 0};
  const std::int64_t whole = count / 4 * 4;
  for (std::int64_t i = 0; i < whole; i += 4)
    for (std::int64_t j = 0; j < 4; ++j) chains[j] += values[i + j];
  for (std::int64_t i = whole; i < count; ++i) chains[i - whole] += values[i];
  return (chains[0] + chains[1]) + (chains[2] + chains[3]);
}

// The offset of a pair. Those of pairs that contribute nothing may be far outside; the sum wraps.
template <class F>
std::int64_t from_first_query(const Contributions<F>& given, std::int64_t q) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(given.by_query[q]) -
                                   static_cast<std::uint64_t>(given.by_query[0]));
}
template <class F>
std::int64_t offset_of(const Contributions<F>& given, std::int64_t k, std::int64_t q) {
  if (given.offsets != nullptr) return given.offsets[k * given.width + q];
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(given.by_key[k]) +
                                   static_cast<std::uint64_t>(from_first_query(given, q)));
}

// Whether all queries of a key with this offset reach elements inside. Nothing overflows that is
// added to an offset inside, unless it is as large as no gradient.
inline bool is_inside(std::int64_t offset, const QueryOffsets& queries, std::int64_t count) {
  return offset >= 0 && offset < count && offset + queries.low >= 0 &&
         offset + queries.high < count;
}

template <class F, class Before>
void add_key(const Contributions<F>& given, const QueryOffsets& queries, std::int64_t k, F* sum,
             std::int64_t count, const Before& before) {
  using Step = QueryOffsets::Step;
  const F* values = given.values + k * given.width;
  if (queries.step == Step::same) {  // one element, inside or not
    const std::int64_t offset = given.by_key[k];
    if (offset < 0 || offset >= count) return;
    before(offset, offset);
    sum[offset] += sum_of_lanes(values, given.queries);
    return;
  }
  if (queries.regular && is_inside(given.by_key[k], queries, count)) {
    before(given.by_key[k] + queries.low, given.by_key[k] + queries.high);
    F* to = sum + given.by_key[k];
    if (queries.step == Step::up) {
      for (std::int64_t q = 0; q < given.queries; ++q) to[q] += values[q];
    } else if (queries.step == Step::down) {
      for (std::int64_t q = 0; q < given.queries; ++q) to[-q] += values[q];
    } else {
      for (std::int64_t q = 0; q < given.queries; ++q) to[from_first_query(given, q)] += values[q];
    }
    return;
  }
  for (std::int64_t q = 0; q < given.queries; ++q) {
    const std::int64_t offset = offset_of(given, k, q);
    if (values[q] == F{0} || offset < 0 || offset >= count) continue;
    before(offset, offset);
    sum[offset] += values[q];
  }
}

}  // namespace treadle::run
