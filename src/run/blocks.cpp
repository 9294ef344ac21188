// Runs of keys found again in blocks: steps as a whole where the block has the same ones, else piece
// by piece.
#include "run/blocks.h"

#include <algorithm>

namespace treadle::run {
namespace {

using layout::Range;
using layout::Run;

// Appends places, joined to those before them.
void add(std::vector<BlockRun>& found, std::int64_t begin, std::int64_t end, bool full) {
  if (begin >= end) return;
  if (!found.empty() && found.back().end == begin && found.back().full == full) {
    found.back().end = end;
  } else {
    found.push_back({begin, end, full});
  }
}

// The places of a segment that a run covers.
void add_places(std::vector<BlockRun>& found, const Segment& segment, const Run& run) {
  const Run& keys = segment.keys;
  const auto add_keys = [&](std::int64_t begin, std::int64_t end) {
    add(found, segment.place + keys.keys_before(begin), segment.place + keys.keys_before(end),
        run.full());
  };
  // From the run's first key to its last there is no other key in the segment.
  const bool same_steps = run.count() > 1 && run.width() == keys.width() &&
                          (keys.count() == 1 || run.step() == keys.step()) &&
                          (run.begin() - keys.begin()) % run.step() == 0;
  if (run.count() == 1 || same_steps) return add_keys(run.begin(), run.end());
  for (std::int64_t i = run.pieces_before(keys.begin()); i < run.count(); ++i) {
    const Range piece = run.piece(i);
    if (piece.begin >= keys.end()) break;
    add_keys(piece.begin, piece.end);
  }
}

}  // namespace

void find_block_runs(std::vector<BlockRun>& found, std::span<const Segment> block,
                     std::span<const Run> runs, std::size_t& next) {
  found.clear();
  if (block.empty()) return;
  while (next < runs.size() && runs[next].end() <= block.front().keys.begin()) ++next;
  std::size_t at = next;
  for (const Segment& segment : block) {
    while (at < runs.size() && runs[at].end() <= segment.keys.begin()) ++at;
    for (std::size_t i = at; i < runs.size() && runs[i].begin() < segment.keys.end(); ++i)
      add_places(found, segment, runs[i]);
  }
}

}  // namespace treadle::run
