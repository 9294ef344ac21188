// Finds the smallest and largest element of any stretch of an array.
//
// In: an array. Out: the extremes of its stretches. Read query() first.
#include "passes/range_table.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "base/element.h"
#include "base/error.h"

namespace treadle::passes {
namespace {

constexpr std::int64_t block = 256;

template <class E>
void include(E& all, const E& part) {
  all.low = std::min(all.low, part.low);
  all.high = std::max(all.high, part.high);
  all.nan = all.nan || part.nan;
}

// Smallest and largest of neighbouring integers, in their own type: as many at once as a vector holds.
template <class Element>
[[gnu::always_inline]] inline std::pair<Element, Element> extremes_of(const Element* values,
                                                                      std::int64_t count) {
  Element low = values[0], high = values[0];
  for (std::int64_t i = 0; i < count; ++i) {
    const Element value = values[i];  // std::min would keep GCC from using vectors
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
  return {low, high};
}

#if defined(__x86_64__)
// The baseline has no minimum of integers. A table that a mask reads is scanned for every layout, so
// for every token that is decoded.
template <class Element>
[[gnu::target("avx2")]] std::pair<Element, Element> extremes_avx2(const Element* values,
                                                                  std::int64_t count) {
  return extremes_of(values, count);
}
#endif

template <class Element>
std::pair<Element, Element> extremes(const Element* values, std::int64_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return extremes_avx2(values, count);
#endif
  return extremes_of(values, count);
}

}  // namespace

RangeTable::RangeTable(ConstView array) : array_(std::move(array)) {
  if (is_float(array_.dtype())) {
    build(reals_);
  } else {
    build(integers_);
  }
}

template <class T>
RangeTable::Extremes<T> RangeTable::scan(std::int64_t first, std::int64_t last) const {
  return base::visit_dtype(array_.dtype(), [&](auto tag) -> Extremes<T> {
    using Element = typename decltype(tag)::type;
    if constexpr (std::same_as<base::Wide<Element>, T>) {
      if constexpr (std::integral<Element>) {
        if (array_.stride(0) == 1 && first <= last) {
          // Any byte may stand in a boolean's place, and one that is not 0 is true.
          constexpr bool is_bool = std::same_as<Element, bool>;
          using Stored = std::conditional_t<is_bool, std::uint8_t, Element>;
          const auto [low, high] =
              extremes(static_cast<const Stored*>(array_.data()) + first, last - first + 1);
          if constexpr (is_bool) return {low != 0, high != 0, false};
          return {low, high, false};
        }
      }
      // NaN is in no interval: an array of nothing else has an empty one, low above high.
      T low = std::numeric_limits<T>::max(), high = std::numeric_limits<T>::lowest();
      if constexpr (std::floating_point<T>) {
        low = RealRange::infinity;
        high = -RealRange::infinity;
      }
      bool nan = false;
      for (std::int64_t i = first; i <= last; ++i) {
        const T value = base::load_as<Element>(array_.data(), i * array_.stride(0));
        nan = nan || value != value;
        if (value != value) continue;
        low = std::min(low, value);
        high = std::max(high, value);
      }
      return {low, high, nan};
    } else {
      base::internal_error("RangeTable: {} as another type", name_of(array_.dtype()));
    }
  });
}

template <class T>
void RangeTable::build(Levels<T>& levels) {
  std::int64_t count = length() / block;  // whole ones; the rest is read when asked for
  if (count == 0) return;
  auto& blocks = levels.emplace_back(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    blocks[static_cast<std::size_t>(i)] = scan<T>(i * block, i * block + block - 1);
  while (count > 1) {
    count /= 2;
    std::vector<Extremes<T>> level(static_cast<std::size_t>(count));
    const std::vector<Extremes<T>>& halves = levels.back();
    for (std::size_t i = 0; i < level.size(); ++i) {
      const Extremes<T>&a = halves[2 * i], &b = halves[2 * i + 1];
      level[i] = {std::min(a.low, b.low), std::max(a.high, b.high), a.nan || b.nan};
    }
    levels.push_back(std::move(level));
  }
}

// Of the stretches that the blocks consist of, the largest: at most two of each level.
template <class T>
RangeTable::Extremes<T> RangeTable::query(const Levels<T>& levels, std::int64_t first,
                                          std::int64_t last) const {
  auto begin = static_cast<std::size_t>((first + block - 1) / block);
  auto end = static_cast<std::size_t>((last + 1) / block);
  if (begin >= end) return scan<T>(first, last);
  Extremes<T> all = scan<T>(first, static_cast<std::int64_t>(begin) * block - 1);
  include(all, scan<T>(static_cast<std::int64_t>(end) * block, last));
  for (std::size_t level = 0; begin < end; ++level, begin /= 2, end /= 2) {
    if (begin % 2 == 1) include(all, levels[level][begin++]);
    if (end % 2 == 1) include(all, levels[level][--end]);
  }
  return all;
}

IntegerRange RangeTable::integers(std::int64_t first, std::int64_t last) const {
  const Extremes<std::int64_t> all = query(integers_, first, last);
  return IntegerRange::between(all.low, all.high);
}

RealRange RangeTable::reals(std::int64_t first, std::int64_t last) const {
  const Extremes<double> all = query(reals_, first, last);
  if (all.low > all.high) return RealRange::anything();  // only NaN
  const RealRange range = RealRange::between(all.low, all.high, all.nan);
  return array_.dtype() == DType::f64 ? widened(range)
                                      : range;  // fp32 evaluation rounds an f64 element
}

const RangeTable& CaptureTables::along(std::int32_t slot, int axis, std::int64_t offset) {
  const Key key{slot, axis, offset};
  {
    const std::shared_lock lock(mutex_);
    const auto known = tables_.find(key);
    if (known != tables_.end()) return known->second;
  }
  const ConstView& view = memory(slot);
  const auto* start = static_cast<const std::byte*>(view.data()) +
                      offset * static_cast<std::int64_t>(size_of(view.dtype()));
  RangeTable table(ConstView(start, view.dtype(), {view.size(axis)}, {view.stride(axis)}));
  const std::unique_lock lock(mutex_);
  return tables_.try_emplace(key, std::move(table))
      .first->second;  // a map keeps its elements where they are
}

}  // namespace treadle::passes
