// A Part: some leaves of the queries that one rank computes, ready to run.
//
// Its rows lie packed, tile after tile. If the part is cut, that is, if others have the rest of its keys, what it
// finds are not results but states: one of all chunks up to its last one if it has the first of all, else one of
// each chunk. A Slice is what such a state is of.
#pragma once

#include <cstdint>
#include <vector>

#include "distributed/assignment.h"
#include "distributed/row_runs.h"
#include "layout/layout.h"
#include "layout/range.h"
#include "plan/tree_parts.h"
#include "treadle/layout.h"

namespace treadle::distributed {

using Ranges = std::vector<layout::Range>;

struct Slice {
  Layout layout;  // of its chunks alone
  // What its leaves add to dK and dV: for each list of the layout and each piece of the tree, the keys.
  std::vector<std::vector<Ranges>> added;
};

// What every rank knows of a part, whoever computes it.
struct PartShape {
  Piece piece;
  layout::Tiles tiles;  // packed
  bool cut = false;     // it does not have all chunks

  [[nodiscard]] std::int64_t rows() const {
    const std::int64_t last = tiles.count() - 1;
    return last < 0 ? 0 : tiles.row(last, 0) + tiles.size(last);
  }
  // How many states it hands over of each row, if it does.
  [[nodiscard]] std::int64_t states() const {
    return piece.chunks.begin == 0 ? 1 : piece.chunks.count();
  }
  [[nodiscard]] layout::Range heads(std::int64_t per_key_head) const {
    return {piece.key_heads.begin * per_key_head, piece.key_heads.end * per_key_head};
  }
};

// A part that this rank computes.
struct Part : PartShape {
  std::vector<std::vector<RowRun>> from;  // rank by rank: the rows that it has
  bool own = false;                       // all rows are this rank's
  std::vector<Slice> slices;
  plan::TreeParts tree;
};

// A part that another rank computes and that has rows of this one.
struct Away {
  int rank = 0;
  PartShape shape;
  std::vector<RowRun> rows;
};

}  // namespace treadle::distributed
