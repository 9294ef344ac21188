// Keys as residues of many periods.
//
// In: an undecided box of some tiles and some residues of some periods. Out: its runs, if all
// periods are alike; else fewer residues to look at. Far from the borders of a mask periods are
// alike, so the cost follows the borders here too.
#include <algorithm>
#include <bit>

#include "layout/classify.h"

namespace treadle::layout {
namespace {

using passes::Axis;
using passes::Truth;

// One stretch of visible residues has two ends, and each of them is in one undecided part. With
// more, no stretch is found: better fewer periods or tiles.
constexpr std::size_t most_undecided = 2;

// Pairs of a tile and a period that may be evaluated.
constexpr std::int64_t most_pairs = 1 << 16;
constexpr std::int64_t fewest_periods = 4;

// Residues from `low` on, counted from the first of the box, which are always visible or undecided.
struct Residues {
  std::int64_t low, count;
  Truth truth;
};

Axis part_of(const Axis& keys, std::int64_t low, std::int64_t count) {
  Axis part = keys;
  part.low += low;
  part.count = count;
  return part;
}

// A pattern of the first period, in all of them.
void append_periods(std::vector<Run>& runs, std::span<const Run> pattern, const Axis& keys) {
  if (pattern.size() == 1 && pattern[0].count() == 1) {
    const Run& only = pattern[0];
    if (only.length() == keys.outer_step)
      return append(runs, only.begin(), only.begin() + keys.outer_count * only.length(),
                    only.full());
    return append(
        runs,
        Run::stepped({only.begin(), only.width(), keys.outer_step, keys.outer_count}, only.full()));
  }
  for (std::int64_t i = 0; i < keys.outer_count; ++i) {
    const std::int64_t shift = i * keys.outer_step;
    for_each_piece(pattern, [&](Range piece, bool full) {
      append(runs, piece.begin + shift, piece.end + shift, full);
    });
  }
}

}  // namespace

// Halves residues until each part is always or never visible in all tiles and periods. Where that
// does not come to an end, leaves the residues that may be visible in `keys`.
bool Classifier::split_residues(const Group& group, const Axis& queries, Axis& keys) {
  if (keys.count == 1 || !residues_.take()) return false;
  std::vector<Residues> parts{{0, keys.count, Truth::unsure}};
  std::vector<Residues> halves;
  const auto look = [&](std::int64_t low, std::int64_t count) {
    const Truth truth = truth_of(queries, part_of(keys, low, count));
    if (truth != Truth::never) halves.push_back({low, count, truth});
  };
  std::size_t undecided = 1;
  while (true) {
    halves.clear();
    for (const Residues& part : parts) {
      if (part.truth == Truth::always || part.count == 1) {
        halves.push_back(part);
        continue;
      }
      const auto half =
          static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(part.count)) / 2);
      look(part.low, half);
      look(part.low + half, part.count - half);
    }
    std::swap(parts, halves);
    undecided = 0;
    for (const Residues& part : parts) {
      if (part.truth == Truth::unsure) ++undecided;
    }
    const bool all_single = std::ranges::all_of(
        parts, [](const Residues& part) { return part.truth == Truth::always || part.count == 1; });
    if (undecided == 0 || undecided > most_undecided || all_single) break;
  }
  if (undecided == 0) {
    residues_.succeed();
    std::vector<Run> pattern;
    for (const Residues& part : parts)
      append(pattern, keys.low + part.low, keys.low + part.low + part.count, true);
    for (auto& list : group.runs) append_periods(list, pattern, keys);
    return true;
  }
  const std::int64_t low = parts.front().low;
  const std::int64_t count = parts.back().low + parts.back().count - low;
  if (count < keys.count) residues_.succeed();
  keys = part_of(keys, low, count);
  return false;
}

// One tile: classifies the first period and asks whether the others are like it.
bool Classifier::repeat_first_period(const Group& group, const Axis& keys) {
  const std::int64_t pairs = keys.count * group.tiles.size(group.first);
  if (keys.outer_count < fewest_periods || pairs > most_pairs || !repeats_.take()) return false;
  std::vector<Run> pattern;
  split({group.tiles, group.first, group.last, {&pattern, 1}},
        {.low = keys.low, .count = keys.count});
  if (!repeats(group, keys, pattern)) return false;
  repeats_.succeed();
  append_periods(group.runs[0], pattern, keys);
  return true;
}

bool Classifier::repeats(const Group& group, const Axis& keys, std::span<const Run> pattern) {
  const Axis& queries = group.tiles.axis(group.first);
  const auto all_are = [&](Truth truth, std::int64_t begin, std::int64_t end) {
    return begin == end || truth_of(queries, part_of(keys, begin - keys.low, end - begin)) == truth;
  };
  std::int64_t done = keys.low;
  bool alike = true;
  for_each_piece(pattern, [&](Range piece, bool full) {
    alike = alike && all_are(Truth::never, done, piece.begin) &&
            (!full || all_are(Truth::always, piece.begin, piece.end));
    done = piece.end;
  });
  if (!alike || !all_are(Truth::never, done, keys.low + keys.count)) return false;
  for_each_piece(pattern, [&](Range piece, bool full) {
    alike = alike &&
            (full || repeats_partly(group, part_of(keys, piece.begin - keys.low, piece.count())));
  });
  return alike;
}

// Columns that some query sees in the first period and another does not: they are partial in all
// periods if these queries, as witnesses, see the same in all of them.
bool Classifier::repeats_partly(const Group& group, const Axis& columns) {
  const Tiles& tiles = group.tiles;
  evaluate(tiles, group.first, 0, 1, {.low = columns.low, .count = columns.count});
  if (!interpret_.poison(0).empty()) return false;
  const auto seen = interpret_.booleans(0);
  for (const bool visible : {true, false}) {
    for (std::int64_t column = 0; column < columns.count;) {
      // The query that is a witness for the most columns.
      std::int64_t best = 0;
      std::int64_t most = 0;
      for (std::int64_t i = 0; i < tiles.size(group.first); ++i) {
        const std::uint8_t* row = seen.data() + i * columns.count;
        std::int64_t end = column;
        while (end < columns.count && (row[end] != 0) == visible) ++end;
        if (end - column <= most) continue;
        most = end - column;
        best = i;
      }
      const Axis witness{.low = tiles.query(group.first, best)};
      const Truth wanted = visible ? Truth::always : Truth::never;
      if (most == 0 || truth_of(witness, part_of(columns, column, most)) != wanted) return false;
      column += most;
    }
  }
  return true;
}

}  // namespace treadle::layout
