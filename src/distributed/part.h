// A Part: some leaves of the queries that one rank computes, ready to run.
//
// Its rows lie packed, tile after tile. If the part is cut, that is, if others have the rest of its keys, what it
// finds are not results but states: one of all chunks up to its last one if it has the first of all, else one of
// each chunk. A Slice is what such a state is of. They go to parts that have no keys, and join them.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "distributed/assignment.h"
#include "distributed/key_set.h"
#include "distributed/row_runs.h"
#include "layout/layout.h"
#include "layout/range.h"
#include "plan/tree_parts.h"
#include "treadle/distributed.h"
#include "treadle/layout.h"

namespace treadle::distributed {

// A pass over the queries, as all ranks know it.
struct PassPlan {
  layout::Tiles tiles;
  std::int64_t tiles_per_leaf = 1;
  std::int64_t chunks_per_task = 1;  // of the whole layout

  [[nodiscard]] std::int64_t leaves() const {
    return (tiles.count() + tiles_per_leaf - 1) / tiles_per_leaf;
  }
};

// What every rank knows of a part, whoever computes it.
struct PartShape {
  Piece piece;
  layout::Tiles tiles;    // packed
  layout::Range numbers;  // theirs, among all of the pass
  bool joins = false;     // it joins what others find, and looks at no keys
  bool cut = false;       // it has some chunks alone: what it finds goes to who joins it
  bool first = false;     // with the first one
  bool states = false;    // it finds states: it is cut, or there are other passes
  bool final = false;     // what it finds is complete, and goes home

  [[nodiscard]] std::int64_t rows() const {
    const std::int64_t last = tiles.count() - 1;
    return last < 0 ? 0 : tiles.row(last, 0) + tiles.size(last);
  }
  // Of how many slices it is.
  [[nodiscard]] std::int64_t slice_count() const {
    return cut && !first ? piece.chunks.count() : 1;
  }
  [[nodiscard]] layout::Range heads(std::int64_t per_key_head) const {
    return {piece.key_heads.begin * per_key_head, piece.key_heads.end * per_key_head};
  }
};

PartShape shape_of(const Piece& piece, const std::vector<PassPlan>& passes, layout::Range chunks);

struct Slice {
  layout::Range chunks;
  Layout layout;  // of these chunks alone
};

// Some of a part's tiles, as a call of its own.
struct Batch {
  Layout layout;
  layout::Range rows;      // packed
  std::vector<int> ranks;  // that have them
};

// A part that this rank computes.
struct Part : PartShape {
  std::vector<std::vector<RowRun>> from;  // rank by rank: the rows that it has
  bool own = false;                       // all rows are this rank's
  std::vector<Slice> slices;
  // Of a forward, in turn, so that there is time for messages between them; or none: all at once.
  std::vector<Batch> batches;
  std::vector<std::int64_t>
      leaves;  // by number in the tree: those of all batch entries that share keys
  plan::TreeParts tree;
  std::int64_t all_leaves = 0;  // of the tree, with those of other parts

  // As a call of its own.
  [[nodiscard]] backend::Sizes sizes(const backend::Sizes& all) const;
  // Of dK and dV: [batch entry][key head], those of the part.
  [[nodiscard]] std::int64_t lists(const backend::Sizes& all) const {
    return sizes(all).key_batch * piece.key_heads.count();
  }
};

Part make_part(const PartShape& shape, const backend::QueryPasses& passes, const PassPlan& pass,
               const backend::Sizes& sizes, const Shards& queries, int rank, Sums sums,
               const base::Workers& workers);

// Divides a part into batches of leaves whose queries the same ranks have; those of this rank alone
// into a few of about equal work.
void add_batches(Part& part, int rank, const backend::QueryPasses& passes, const PassPlan& pass,
                 const backend::Sizes& sizes, const Shards& queries, const base::Workers& workers);

// Keys that a part's slice looks at: of each list alike, or each its own. Of all leaves, or of those of a node of
// its tree.
std::vector<Ranges> keys_of(const Part& part, const Slice& slice, const backend::Sizes& all);
std::vector<Ranges> keys_of(const Part& part, const Slice& slice, const backend::Sizes& all,
                            const PassPlan& pass, std::size_t piece);

// A part that another rank computes and that has rows of this one.
struct Away {
  int rank = 0;
  PartShape shape;
  std::vector<RowRun> rows;
};

}  // namespace treadle::distributed
