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
// Which alone has a minimum of 64 bits.
template <class Element>
[[gnu::target("avx512f")]] std::pair<Element, Element> extremes_avx512(const Element* values,
                                                                       std::int64_t count) {
  return extremes_of(values, count);
}
#endif

template <class Element>
std::pair<Element, Element> extremes(const Element* values, std::int64_t count) {
#if defined(__x86_64__)
  if (sizeof(Element) == 8 && __builtin_cpu_supports("avx512f"))
    return extremes_avx512(values, count);
  if (__builtin_cpu_supports("avx2")) return extremes_avx2(values, count);
#endif
  return extremes_of(values, count);
}

}  // namespace

void RangeTable::build(ConstView array, std::int64_t most) {
  array_ = std::move(array);
  if (is_float(array_.dtype())) {
    fill(reals_, most);
  } else {
    fill(integers_, most);
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
void RangeTable::fill(Levels<T>& levels, std::int64_t most) {
  std::int64_t count = length() / block;  // whole ones; the rest is read when asked for
  std::int64_t room = std::max(length(), most) / block;
  for (std::size_t k = 0; room > 0; ++k, count /= 2, room /= 2) {
    if (k == levels.size()) levels.emplace_back();
    std::vector<Extremes<T>>& level = levels[k];
    level.reserve(static_cast<std::size_t>(room));
    level.resize(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < level.size(); ++i) {
      const auto first = static_cast<std::int64_t>(i) * block;
      if (k == 0) {
        level[i] = scan<T>(first, first + block - 1);
        continue;
      }
      level[i] = levels[k - 1][2 * i];
      include(level[i], levels[k - 1][2 * i + 1]);
    }
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

void CaptureTables::bind(const std::vector<ConstView>& memory) {
  constexpr std::size_t most = 16;  // lines may be others in every call
  memory_ = memory;
  if (tables_.size() > most) tables_.clear();
  for (auto& [key, known] : tables_) known.valid = false;
}

const RangeTable* CaptureTables::find(const CaptureLine& line, std::int64_t last) const {
  for (const bool whole : {false, true}) {
    const auto known = tables_.find({line, whole});
    if (known != tables_.end() && known->second.valid && known->second.table.length() > last)
      return &known->second.table;
  }
  return nullptr;
}

const RangeTable& CaptureTables::along(const CaptureLine& line, std::int64_t last) {
  {
    const std::shared_lock lock(mutex_);
    if (const RangeTable* table = find(line, last)) return *table;
  }
  const std::unique_lock lock(mutex_);
  if (const RangeTable* table = find(line, last)) return *table;
  // What others may look at stays as it is, so one that is too short gets one of all beside it.
  bool whole = false;
  const auto shorter = tables_.find({line, false});
  if (shorter != tables_.end() && shorter->second.valid) whole = true;
  const ConstView& view = memory(line.slot);
  const auto* start = static_cast<const std::byte*>(view.data()) +
                      line.offset * static_cast<std::int64_t>(size_of(view.dtype()));
  const std::int64_t length = whole ? view.size(line.axis) : last + 1;
  Known& known = tables_[{line, whole}];  // a map keeps its elements where they are
  known.table.build(ConstView(start, view.dtype(), {length}, {view.stride(line.axis)}),
                    view.size(line.axis));
  known.valid = true;
  return known.table;
}

}  // namespace treadle::passes
