// OneTiles: layouts of a few queries each, which are one tile, without a Layout for each of them.
//
//   OneTiles tiles(mask);
//   tiles.build(memory, extents, workers);       // a step of some sequences
//   tiles[3].runs(b, h)                          // until the next step
//
// A step finds all memory that the one before it left, and costs little more than its bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "layout/build.h"
#include "layout/classify.h"
#include "layout/layout.h"
#include "passes/range_table.h"

namespace treadle::layout {

class OneTiles {
 public:
  explicit OneTiles(const ir::Graph& mask);

  // Each extent has queries, batches and heads. `memory` is bound to the mask's slots. What is given
  // need not outlive the call.
  void build(const std::vector<ConstView>& memory, std::span<const Extent> extents,
             const base::Workers& workers);

  // Gives back memory of lists that were very long. What was built is forgotten.
  void trim();

  [[nodiscard]] std::size_t size() const { return places_.size(); }
  [[nodiscard]] OneTile operator[](std::size_t i) const;
  // The same as a value. Of `tiles` there is one.
  [[nodiscard]] Layout layout(std::size_t i, Tiles tiles) const;

 private:
  // What a thread made: runs of its extents, and what it makes them with.
  struct Part {
    Classifier classifier;
    Tiles tiles;
    std::vector<Run> list;
    std::vector<std::uint32_t> offsets;  // as a Layout has them, of each extent
    std::vector<Run> runs;
  };
  struct Place {
    Extent extent;
    std::size_t part = 0, first = 0;  // of its offsets
    bool has_full = false, has_partial = false;
  };
  void add(Part& part, Place& place, const base::Workers& workers);

  Mask mask_;
  bool per_batch_, per_head_;
  passes::CaptureTables tables_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::vector<Place> places_;
};

}  // namespace treadle::layout
