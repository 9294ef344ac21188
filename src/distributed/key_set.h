// Keys that several tiles look at, collected run by run.
//
//   KeySet set;
//   set.add(layout.runs(b, h, tile));
//   Ranges keys = set.take();              // ascending, none touches the next
//
// Tiles of a residue class have thousands of pieces each, nearly all the same; they are kept as one line.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "layout/range.h"
#include "layout/run.h"

namespace treadle::distributed {

using Ranges = std::vector<layout::Range>;

class KeySet {
 public:
  void add(std::span<const layout::Run> runs);
  // Which begins anew.
  Ranges take();

 private:
  // Pieces first .. end of a line: piece i begins at residue + i * step.
  struct Line {
    std::int64_t residue, step, width;
    auto operator<=>(const Line&) const = default;
  };

  Ranges plain_;
  std::map<Line, layout::Range> lines_;
};

// Sorted and joined where they touch.
void tidy(Ranges& ranges);
Ranges inside(const Ranges& ranges, layout::Range bound);

}  // namespace treadle::distributed
