// Costed candidates as text, for those who want to know why a mask is cut as it is: TREADLE_DUMP=plan
// and `treadle explain` print it.
//
//   order            tiles of    cost  columns  tiles  runs  pieces
//   residues of 128        32  100440      960    128   128     960
//   residues of 128        48  115080     ...
//   cheapest: residues of 128, tiles of 32: cost 100440; 960 columns, 128 tiles, 128 runs
//   next: residues of 128, tiles of 48: 1.15 times the cost; ...
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "layout/choose.h"

namespace treadle::layout {

// "residues of 128, tiles of 16"
std::string name_of(const Choice& choice);

// A table, best first as costed_candidates() returns them, and lines that compare the first with others.
// Numbers of candidates of which only some tiles were looked at have a ~.
std::string to_text(std::span<const Choice> costed, std::size_t most = 12);

// The lines alone: the winner against the next one, and against the best of another order.
std::string comparison_of_first(std::span<const Choice> costed);

}  // namespace treadle::layout
