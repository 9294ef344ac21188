// Places of a block that several tiles look at, put together.
//
//   for_each_shared({{0, 16}, {0, 32}, {0, 48}}, 6, add);
//
//     add({0, 3}, {0, 18})     all three tiles look at these places
//     add({1, 3}, {18, 36})    the last two at these, in whole steps
//     add({2, 3}, {36, 48})
//
// So a sum over tiles goes through each place once, with no tile that has nothing to add. For each
// place tiles come in ascending order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "layout/range.h"

namespace treadle::run {

// Calls add(tiles, places) with places that begin and end at multiples of `step`. A tile's own are
// widened to these.
template <class Add>
void for_each_shared(std::span<const layout::Range> places, std::int64_t step, const Add& add) {
  const auto begin_of = [&](layout::Range range) { return range.begin / step * step; };
  const auto end_of = [&](layout::Range range) { return (range.end + step - 1) / step * step; };
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t at = 0;;) {
    std::int64_t begin = never, end = never;
    for (const layout::Range& range : places)
      if (!range.empty() && end_of(range) > at)
        begin = std::min(begin, std::max(at, begin_of(range)));
    if (begin == never) return;
    // Up to where some tile begins or ends.
    for (const layout::Range& range : places) {
      if (range.empty() || end_of(range) <= begin) continue;
      end = std::min(end, begin_of(range) > begin ? begin_of(range) : end_of(range));
    }
    const auto looks = [&](std::int64_t tile) {
      const layout::Range& range = places[static_cast<std::size_t>(tile)];
      return !range.empty() && begin_of(range) <= begin && end_of(range) > begin;
    };
    for (std::int64_t tile = 0; tile < std::ssize(places); ++tile) {
      const std::int64_t first = tile;
      while (tile < std::ssize(places) && looks(tile)) ++tile;
      if (tile > first) add(layout::Range(first, tile), layout::Range(begin, end));
    }
    at = end;
  }
}

}  // namespace treadle::run
