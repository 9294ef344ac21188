// Runs of keys cut to chunks, joined over tiles, and found again in blocks.
//
// The tiles of a residue class want the same steps of keys: those are joined, and found, as a whole.
// Where steps of different tiles alternate, they are handled piece by piece.
#include "run/blocks.h"

#include <algorithm>

namespace treadle::run {
namespace {

using layout::Range;
using layout::Run;

// Of the first run that ends after `key`.
std::size_t first_reaching(std::span<const Run> runs, std::int64_t key) {
  const auto found =
      std::ranges::partition_point(runs, [&](const Run& run) { return run.end() <= key; });
  return static_cast<std::size_t>(found - runs.begin());
}

std::int64_t begin_of(const Segment& segment) { return segment.keys.begin(); }

// Puts a segment that does not begin before `last` does into it, if the two are one run together.
bool take_in(Run& last, const Run& more) {
  if (last.count() == 1 && more.count() == 1) {
    last = Run(last.begin(), std::max(last.end(), more.end()), false);
    return true;
  }
  const std::int64_t step = last.count() > 1 ? last.step() : more.step();
  const std::int64_t apart = more.begin() - last.begin();
  const bool same_steps = (more.count() == 1 || more.step() == step) && apart % step == 0 &&
                          more.width() == last.width();
  const std::int64_t first = apart / step;  // piece of `last` that `more` begins with
  if (!same_steps || first > last.count()) return false;
  last = Run::stepped({.begin = last.begin(),
                       .width = last.width(),
                       .step = step,
                       .count = std::max(last.count(), first + more.count())},
                      false);
  return true;
}

// Every piece becomes a segment of its own, from the back, so that none is overwritten too early.
void expand(std::vector<Segment>& wanted) {
  std::size_t pieces = 0;
  for (const Segment& segment : wanted) pieces += static_cast<std::size_t>(segment.keys.count());
  std::size_t from = wanted.size();
  wanted.resize(pieces, Segment{{0, 0, false}});
  while (from > 0) {
    const Run run = wanted[--from].keys;
    for (std::int64_t i = run.count() - 1; i >= 0; --i)
      wanted[--pieces].keys = Run(run.piece(i).begin, run.piece(i).end, false);
  }
}

void sort(std::vector<Segment>& wanted) {
  if (!std::ranges::is_sorted(wanted, {}, begin_of)) std::ranges::sort(wanted, {}, begin_of);
}

// False if spans of some that are left overlap.
bool join_sorted(std::vector<Segment>& wanted) {
  if (wanted.empty()) return true;
  std::size_t last = 0;
  bool apart = true;
  for (std::size_t i = 1; i < wanted.size(); ++i) {
    const Run& more = wanted[i].keys;
    const bool touches = more.begin() <= wanted[last].keys.end();
    if (touches && take_in(wanted[last].keys, more)) continue;
    apart = apart && more.begin() >= wanted[last].keys.end();
    wanted[++last] = wanted[i];
  }
  wanted.erase(wanted.begin() + static_cast<std::ptrdiff_t>(last + 1), wanted.end());
  return apart;
}

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

bool reaches(std::span<const Run> runs, std::int64_t begin, std::int64_t end) {
  if (begin >= end) return false;
  for (std::size_t i = first_reaching(runs, begin); i < runs.size() && runs[i].begin() < end; ++i) {
    if (runs[i].piece(runs[i].pieces_before(begin)).begin < end) return true;
  }
  return false;
}

void add_wanted(std::vector<Segment>& wanted, std::span<const Run> runs, std::int64_t begin,
                std::int64_t end) {
  for (std::size_t i = first_reaching(runs, begin); i < runs.size() && runs[i].begin() < end; ++i) {
    for (const Run& part : layout::RunPart(runs[i], begin, end)) wanted.push_back({part});
  }
}

std::int64_t join(std::vector<Segment>& wanted) {
  sort(wanted);
  if (!join_sorted(wanted)) {
    expand(wanted);
    sort(wanted);
    join_sorted(wanted);
  }
  std::int64_t keys = 0;
  for (const Segment& segment : wanted) keys += segment.keys.length();
  return keys;
}

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
