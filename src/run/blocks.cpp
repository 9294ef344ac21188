// Runs of keys cut to chunks, joined over tiles, and found again in blocks.
#include "run/blocks.h"

#include <algorithm>

namespace treadle::run {
namespace {

// Of the first run that ends after `key`.
std::size_t first_reaching(std::span<const layout::Run> runs, std::int64_t key) {
  const auto found =
      std::ranges::partition_point(runs, [&](const layout::Run& run) { return run.end() <= key; });
  return static_cast<std::size_t>(found - runs.begin());
}

}  // namespace

void add_wanted(std::vector<Segment>& wanted, std::span<const layout::Run> runs, std::int64_t begin,
                std::int64_t end) {
  for (std::size_t i = first_reaching(runs, begin); i < runs.size() && runs[i].begin() < end; ++i) {
    wanted.push_back({std::max(runs[i].begin(), begin), std::min(runs[i].end(), end)});
  }
}

std::int64_t join(std::vector<Segment>& wanted) {
  if (!std::ranges::is_sorted(wanted, {}, &Segment::begin))
    std::ranges::sort(wanted, {}, &Segment::begin);
  std::size_t kept = 0;
  std::int64_t keys = 0;
  for (const Segment& segment : wanted) {
    if (kept > 0 && segment.begin <= wanted[kept - 1].end) {
      const std::int64_t end = std::max(wanted[kept - 1].end, segment.end);
      keys += end - wanted[kept - 1].end;
      wanted[kept - 1].end = end;
    } else {
      keys += segment.end - segment.begin;
      wanted[kept++] = segment;
    }
  }
  wanted.resize(kept);
  return keys;
}

void find_block_runs(std::vector<BlockRun>& found, std::span<const Segment> block,
                     std::span<const layout::Run> runs, std::size_t& next) {
  found.clear();
  if (block.empty()) return;
  while (next < runs.size() && runs[next].end() <= block.front().begin) ++next;
  std::size_t at = next;
  for (const Segment& segment : block) {
    while (at < runs.size() && runs[at].end() <= segment.begin) ++at;
    for (std::size_t i = at; i < runs.size() && runs[i].begin() < segment.end; ++i) {
      const std::int64_t shift = segment.place - segment.begin;
      const std::int64_t begin = std::max(runs[i].begin(), segment.begin) + shift;
      const std::int64_t end = std::min(runs[i].end(), segment.end) + shift;
      if (!found.empty() && found.back().end == begin && found.back().full == runs[i].full()) {
        found.back().end = end;
      } else {
        found.push_back({begin, end, runs[i].full()});
      }
    }
  }
}

}  // namespace treadle::run
