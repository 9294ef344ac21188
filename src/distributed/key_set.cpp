// Runs joined to ranges.
#include "distributed/key_set.h"

#include <algorithm>
#include <utility>

namespace treadle::distributed {

using layout::Range;
using layout::Run;

void KeySet::add(std::span<const Run> runs) {
  for (const Run& run : runs) {
    if (run.count() == 1) {
      if (!plain_.empty() && plain_.back().begin <= run.begin() &&
          run.begin() <= plain_.back().end) {
        plain_.back().end = std::max(plain_.back().end, run.end());
      } else {
        plain_.emplace_back(run.begin(), run.end());
      }
      continue;
    }
    const Line line{run.begin() % run.step(), run.step(), run.width()};
    const std::int64_t first = run.begin() / run.step();
    const Range pieces{first, first + run.count()};
    const auto [at, is_new] = lines_.try_emplace(line, pieces);
    if (is_new) continue;
    Range& known = at->second;
    if (pieces.begin <= known.end && known.begin <= pieces.end) {
      known = {std::min(known.begin, pieces.begin), std::max(known.end, pieces.end)};
      continue;
    }
    for (std::int64_t i = 0; i < run.count(); ++i) plain_.push_back(run.piece(i));
  }
}

Ranges KeySet::take() {
  Ranges all = std::exchange(plain_, {});
  for (const auto& [line, pieces] : lines_) {
    for (std::int64_t i = pieces.begin; i < pieces.end; ++i) {
      const std::int64_t begin = line.residue + i * line.step;
      all.emplace_back(begin, begin + line.width);
    }
  }
  lines_.clear();
  tidy(all);
  return all;
}

void tidy(Ranges& ranges) {
  std::ranges::sort(ranges, {}, &Range::begin);
  std::size_t kept = 0;
  for (const Range& range : ranges) {
    if (range.empty()) continue;
    if (kept > 0 && range.begin <= ranges[kept - 1].end) {
      ranges[kept - 1].end = std::max(ranges[kept - 1].end, range.end);
    } else {
      ranges[kept++] = range;
    }
  }
  ranges.resize(kept);
}

Ranges inside(const Ranges& ranges, Range bound) {
  Ranges some;
  auto at = std::ranges::partition_point(
      ranges, [&](const Range& range) { return range.end <= bound.begin; });
  for (; at != ranges.end() && at->begin < bound.end; ++at)
    some.emplace_back(std::max(at->begin, bound.begin), std::min(at->end, bound.end));
  return some;
}

}  // namespace treadle::distributed
