// Finds the smallest and largest element of any stretch of an array.
//
// In: an array. Out: the extremes of its stretches. Read query() first.
#include "passes/range_table.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/element.h"

namespace treadle::passes {
namespace {

constexpr std::int64_t block = 64;

template <class E>
void include(E& all, const E& part) {
  all.low = std::min(all.low, part.low);
  all.high = std::max(all.high, part.high);
  all.nan = all.nan || part.nan;
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
  // NaN is in no interval: an array of nothing else has an empty one, low above high.
  Extremes<T> all{std::numeric_limits<T>::max(), std::numeric_limits<T>::lowest(), false};
  if constexpr (std::floating_point<T>) all = {RealRange::infinity, -RealRange::infinity, false};
  base::visit_dtype(array_.dtype(), [&](auto tag) {
    using Element = typename decltype(tag)::type;
    if constexpr (std::same_as<base::Wide<Element>, T>) {
      for (std::int64_t i = first; i <= last; ++i) {
        const T value = base::load_as<Element>(array_.data(), i * array_.stride(0));
        if (value != value) {
          all.nan = true;
          continue;
        }
        all.low = std::min(all.low, value);
        all.high = std::max(all.high, value);
      }
    }
  });
  return all;
}

template <class T>
void RangeTable::build(Levels<T>& levels) {
  const std::int64_t blocks = length() / block;  // whole ones; the rest is read when asked for
  if (blocks == 0) return;
  auto& base_level = levels.emplace_back();
  for (std::int64_t i = 0; i < blocks; ++i)
    base_level.push_back(scan<T>(i * block, i * block + block - 1));
  for (std::int64_t width = 1; 2 * width <= blocks; width *= 2) {
    const auto& half = levels.back();
    std::vector<Extremes<T>> level;
    for (std::size_t i = 0;
         i + 2 * static_cast<std::size_t>(width) <= static_cast<std::size_t>(blocks); ++i) {
      Extremes<T> both = half[i];
      include(both, half[i + static_cast<std::size_t>(width)]);
      level.push_back(both);
    }
    levels.push_back(std::move(level));
  }
}

template <class T>
RangeTable::Extremes<T> RangeTable::query(const Levels<T>& levels, std::int64_t first,
                                          std::int64_t last) const {
  const std::int64_t first_block = (first + block - 1) / block;
  const std::int64_t end_block = (last + 1) / block;
  if (first_block >= end_block) return scan<T>(first, last);
  Extremes<T> all = scan<T>(first, first_block * block - 1);
  include(all, scan<T>(end_block * block, last));
  const auto count = static_cast<std::uint64_t>(end_block - first_block);
  const auto level = static_cast<std::size_t>(std::bit_width(count) - 1);
  include(all, levels[level][static_cast<std::size_t>(first_block)]);
  include(all, levels[level][static_cast<std::size_t>(end_block) - (std::size_t{1} << level)]);
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
