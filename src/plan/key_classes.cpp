// Runs of all tiles of a class, looked at as residues.
#include "plan/key_classes.h"

#include <algorithm>

namespace treadle::plan {
namespace {

constexpr std::int64_t none = -1, several = -2;

// The residue of all keys of the run, or `several`.
std::int64_t residue_of(const layout::Run& run, std::int64_t modulus) {
  if (run.width() > 1 || (run.count() > 1 && run.step() % modulus != 0)) return several;
  return run.begin() % modulus;
}

// That of all keys that the tiles look at, in any batch and head.
std::int64_t residue_of(const layout::Layout& layout, layout::Range tiles) {
  std::int64_t found = none;
  for (std::int64_t b = 0; b < (layout.per_batch() ? layout.extent().batch : 1); ++b) {
    for (std::int64_t h = 0; h < (layout.per_head() ? layout.extent().heads : 1); ++h) {
      for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
        for (const layout::Run& run : layout.runs(b, h, tile)) {
          const std::int64_t residue = residue_of(run, layout.tiles().order().modulus);
          if (residue == several || (found != none && found != residue)) return several;
          found = residue;
        }
      }
    }
  }
  return found;
}

}  // namespace

std::optional<KeyClasses> key_classes(const layout::Layout& layout) {
  const layout::Tiles& tiles = layout.tiles();
  const std::int64_t modulus = tiles.order().modulus;
  if (tiles.order().kind != layout::Order::Kind::residue || modulus < 2) return std::nullopt;
  if (!layout.has_steps() || modulus > layout.extent().keys.count()) return std::nullopt;

  KeyClasses found{.modulus = modulus, .classes = {}};
  std::vector<bool> taken(static_cast<std::size_t>(modulus));
  for (layout::Range some; some.begin < tiles.count(); some.begin = some.end) {
    some.end = tiles.alike_end(some.begin);
    const std::int64_t residue = residue_of(layout, some);
    if (residue == several) return std::nullopt;
    if (residue != none) {
      if (taken[static_cast<std::size_t>(residue)]) return std::nullopt;
      taken[static_cast<std::size_t>(residue)] = true;
    }
    found.classes.push_back({some, residue});
  }
  // What is left over goes to classes that look at nothing, and to such without queries.
  std::int64_t next = 0;
  const auto free_residue = [&] {
    while (next < modulus && taken[static_cast<std::size_t>(next)]) ++next;
    return next++;
  };
  for (KeyClass& one : found.classes)
    if (one.key_residue == none) one.key_residue = free_residue();
  for (std::int64_t residue = free_residue(); residue < modulus; residue = free_residue())
    found.classes.push_back({{tiles.count(), tiles.count()}, residue});
  return found;
}

layout::Run keys_of_residue(layout::Range keys, std::int64_t modulus, std::int64_t residue) {
  const std::int64_t first = keys.begin + (residue - keys.begin % modulus + modulus) % modulus;
  const std::int64_t count = std::max<std::int64_t>(0, (keys.end - first + modulus - 1) / modulus);
  return layout::Run::stepped({.begin = first, .width = 1, .step = modulus, .count = count}, false);
}

}  // namespace treadle::plan
