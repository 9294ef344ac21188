// Runs of several tiles, merged.
//
// The tiles of a residue class want the same steps of keys, which are joined as a whole. Where steps
// of different tiles alternate, they are handled piece by piece.
#include "run/wanted_keys.h"

#include <algorithm>

namespace treadle::run {
namespace {

using layout::Range;
using layout::Run;

// Puts a run that does not begin before `last` does into it, if the two are one run together.
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

}  // namespace

std::span<const Run> runs_near(std::span<const Run> runs, Range keys) {
  const auto first =
      std::ranges::partition_point(runs, [&](const Run& run) { return run.end() <= keys.begin; });
  const auto last = std::partition_point(first, runs.end(),
                                         [&](const Run& run) { return run.begin() < keys.end; });
  return {first, last};
}

void WantedKeys::reserve(std::size_t pieces) {
  runs_.reserve(pieces);
  spare_.reserve(pieces);
}

void WantedKeys::add(std::span<const Run> runs, Range keys) {
  const std::size_t before = runs_.size();
  for (const Run& run : runs_near(runs, keys))
    for (const Run& part : layout::RunPart(run, keys.begin, keys.end)) runs_.push_back(part);
  if (merge(before)) return;
  expand();
  std::ranges::sort(runs_, {}, [](const Run& run) { return run.begin(); });
  merge(runs_.size());
}

// Runs before and from `middle` on, both ascending. False if spans of some that are left overlap.
bool WantedKeys::merge(std::size_t middle) {
  spare_.clear();
  bool apart = true;
  for (std::size_t a = 0, b = middle; a < middle || b < runs_.size();) {
    const bool takes_a = b == runs_.size() || (a < middle && runs_[a].begin() <= runs_[b].begin());
    const Run& next = runs_[takes_a ? a++ : b++];
    if (!spare_.empty()) {
      if (next.begin() <= spare_.back().end() && take_in(spare_.back(), next)) continue;
      apart = apart && next.begin() >= spare_.back().end();
    }
    spare_.push_back(next);
  }
  std::swap(runs_, spare_);
  return apart;
}

// Every piece becomes a run of its own, from the back, so that none is overwritten too early.
void WantedKeys::expand() {
  std::size_t pieces = 0;
  for (const Run& run : runs_) pieces += static_cast<std::size_t>(run.count());
  std::size_t from = runs_.size();
  runs_.resize(pieces, Run{0, 0, false});
  while (from > 0) {
    const Run run = runs_[--from];
    for (std::int64_t i = run.count() - 1; i >= 0; --i)
      runs_[--pieces] = Run(run.piece(i).begin, run.piece(i).end, false);
  }
}

std::int64_t WantedKeys::count() const {
  std::int64_t keys = 0;
  for (const Run& run : runs_) keys += run.length();
  return keys;
}

std::int64_t count_inside(std::span<const Run> runs, Range keys) {
  std::int64_t count = 0;
  for (const Run& run : runs_near(runs, keys))
    count += run.keys_before(keys.end) - run.keys_before(keys.begin);
  return count;
}

bool reaches(std::span<const Run> runs, Range keys) {
  if (keys.empty()) return false;
  return std::ranges::any_of(runs_near(runs, keys), [&](const Run& run) {
    return run.piece(run.pieces_before(keys.begin)).begin < keys.end;
  });
}

}  // namespace treadle::run
