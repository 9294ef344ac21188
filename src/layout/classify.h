// Classify: the runs of neighbouring tiles, for one batch and head.
//
// Boxes of (queries of some tiles) x (some keys) are bounded; those that are all visible or all
// hidden are settled at once, the others split. A small box of one tile that stays undecided is
// settled exactly, column by column: most columns by a few queries of the tile and a bound, the
// rest by evaluating every pair. So the cost follows the boundary of the mask, not its area.
//
// The keys of a mask with remainders, like (q - kv) % 128, are looked at as residues of many
// periods at once: classify_periods.cpp.
#pragma once

#include <algorithm>
#include <vector>

#include "base/parallel.h"
#include "ir/interpret.h"
#include "layout/layout.h"
#include "passes/bounds.h"

namespace treadle::layout {

class Classifier {
 public:
  // One per thread; the tables may be shared. `mask` is a bool without a score. Every box looks
  // whether the workers are to stop.
  Classifier(const ir::Graph& mask, passes::CaptureTables& tables,
             const std::vector<ConstView>& memory, const base::Workers& workers);
  // For another call. The tables have been bound to its captures.
  void bind(const std::vector<ConstView>& memory, const base::Workers& workers);

  // Appends the runs among keys begin .. end - 1 of tiles first .. last to runs[0 .. last - first].
  void classify(const Tiles& tiles, std::int64_t b, std::int64_t h, std::int64_t first,
                std::int64_t last, std::int64_t begin, std::int64_t end,
                std::span<std::vector<Run>> runs);

  // The same for one tile and only those keys that are listed, as ascending runs. A listed run that
  // is full stays full; in the others the mask decides.
  void classify_listed(const Tiles& tiles, std::int64_t b, std::int64_t h, std::int64_t tile,
                       std::span<const Run> listed, std::vector<Run>& runs);

 private:
  // Neighbouring tiles, and the list of each of them.
  struct Group {
    const Tiles& tiles;
    std::int64_t first, last;
    std::span<std::vector<Run>> runs;

    [[nodiscard]] Group part(std::int64_t from, std::int64_t to) const;
  };
  // Whether a look at residues, or at what repeats, is worth it: it never is for some masks. A
  // success spares so many boxes that it pays for many failures.
  class Patience {
   public:
    bool take() { return left_ > 0 && left_-- > 0; }
    void succeed() { left_ = std::min(left_ + 64, 1024); }

   private:
    int left_ = 64;
  };

  void classify_tile(const Group& group, const passes::Axis& keys);
  // Keys are an axis of a box: neighbours, or some residues (inner) of some periods (outer).
  void split(const Group& group, passes::Axis keys);
  void split_tiles(const Group& group, const passes::Axis& keys);
  passes::Truth truth_of(const passes::Axis& queries, const passes::Axis& keys);
  void settle_all(const Group& group, const passes::Axis& keys);
  void settle(const Tiles& tiles, std::int64_t tile, const passes::Axis& line, std::int64_t step,
              std::vector<Run>& runs);

  // In classify_periods.cpp. Both are true when they have settled the box.
  bool split_residues(const Group& group, const passes::Axis& queries, passes::Axis& keys);
  bool repeat_first_period(const Group& group, const passes::Axis& keys);
  bool repeats(const Group& group, const passes::Axis& keys, std::span<const Run> pattern);
  bool repeats_partly(const Group& group, const passes::Axis& columns);

  // What queries first, first + step, ... of a tile see of keys on a line.
  void evaluate(const Tiles& tiles, std::int64_t tile, std::int64_t first, std::int64_t step,
                const passes::Axis& line);

  const ir::Graph& mask_;
  const base::Workers* workers_;
  int outputs_;
  bool divides_;  // else no keys repeat
  std::vector<ir::NodeId> comparisons_;
  passes::Bounds bounds_;
  ir::Interpreter<double> interpret_;
  passes::Box box_;
  Patience residues_, repeats_;
  std::vector<std::int64_t> borders_, q_, kv_;
  // Per key of the last evaluation: whether some, whether all of them see it.
  std::vector<std::uint8_t> some_, all_;
};

}  // namespace treadle::layout
