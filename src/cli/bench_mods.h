// Score mods that read through integers of a capture, so that what these hold decides whether a read
// leaves its buffer. For forward and backward cases alike.
//
// Integers have 8 bits. A table for all that they can hold needs no look at them (Bound::by_type); if
// it is one element shorter they are looked at, and indices are moved inside (Bound::by_contents).
// All else is the same, so the two together show what moving inside costs.
#pragma once

#include <cstdint>

#include "treadle/mod.h"

namespace treadle::cli {

enum class Bound : std::uint8_t { by_type, by_contents };

// score + c[ids[q] - ids[kv] + 255]
ScoreMod relative_ids(std::int64_t length, Bound bound);

// score + c[documents[q], documents[kv]], of some hundred documents
ScoreMod document_bias(std::int64_t length, Bound bound);

}  // namespace treadle::cli
