// Residue classes of queries that look at residue classes of keys of their own.
//
//   q >= kv && (q - kv) % 128 == 0      queries of residue r see keys of residue r, and no others do
//
// Whoever has all tiles of such a class has all that is ever added to dK and dV of its keys, and all
// keys that its dQ is made of.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "layout/layout.h"

namespace treadle::plan {

struct KeyClass {
  layout::Range tiles;           // neighbours in the layout's order; there may be none
  std::int64_t key_residue = 0;  // its keys are those with kv % modulus == key_residue
};

struct KeyClasses {
  std::int64_t modulus = 1;
  std::vector<KeyClass> classes;  // every tile, and every residue of keys, is in one of them
};

// Nothing if the query order is another, if two classes look at one residue of keys or a class at
// several, or if nobody looks at anything.
std::optional<KeyClasses> key_classes(const layout::Layout& layout);

// The keys of a residue inside a range, which has some.
layout::Run keys_of_residue(layout::Range keys, std::int64_t modulus, std::int64_t residue);

}  // namespace treadle::plan
