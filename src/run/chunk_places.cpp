// Runs of a block, cut where chunks end.
#include "run/chunk_places.h"

namespace treadle::run {

Seen seen_of(std::span<const BlockRun>& runs, layout::Range places) {
  while (!runs.empty() && runs.front().end <= places.begin) runs = runs.subspan(1);
  Seen seen;
  for (const BlockRun& run : runs) {
    if (run.begin >= places.end) break;
    const std::int64_t begin = std::max(run.begin, places.begin);
    const std::int64_t end = std::min(run.end, places.end);
    if (seen.is_empty()) seen.begin = begin;
    seen.end = end;
    (run.full ? seen.full : seen.partial) += end - begin;
  }
  return seen;
}

}  // namespace treadle::run
