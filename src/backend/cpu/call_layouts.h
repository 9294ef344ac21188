// The layouts of some calls that run together: given, built one by one, or, those of few queries, all
// at once and kept as they are (layout/one_tiles.h).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/cpu/cpu.h"
#include "layout/one_tiles.h"

namespace treadle::backend::cpu {

class Cpu::Layouts {
 public:
  explicit Layouts(const Cpu& cpu) : cpu_(cpu), tiles_(cpu.program_.mask) {}

  // Of calls that all have the same bindings and workers. They outlive what is said of them here.
  void find(std::span<const ForwardRequest* const> calls);

  // Whether the mask is looked at as a whole, and all queries are one tile.
  [[nodiscard]] bool is_one_tile(std::size_t call) const;
  // Then: whether there is one for each entry of the batch, and the one of an entry or of all.
  [[nodiscard]] bool each(std::size_t call) const { return made_[call].each; }
  [[nodiscard]] layout::OneTile one_tile(std::size_t call, std::int64_t b) const;

  // As a value.
  [[nodiscard]] Layout layout(std::size_t call) const;
  // The same of one call, if it is of few queries and there is one tile for all of it.
  [[nodiscard]] bool can_be_one_tile(const Sizes& sizes, const Bindings& bound) const;
  [[nodiscard]] Layout layout(const Sizes& sizes, const Bindings& bound,
                              const base::Workers& workers);

  // Forgets layouts that somebody else holds, and keeps no more memory than most calls need.
  void end() {
    made_.clear();
    tiles_.trim();
  }

 private:
  // Whether layouts of few queries may stay where they are built.
  [[nodiscard]] bool are_kept(const Bindings& bound) const;

  struct Made {
    const ForwardRequest* call = nullptr;
    Layout whole;  // or, if that is empty, tiles from `first` on
    std::size_t first = 0;
    bool each = false;
  };
  [[nodiscard]] Layout layout_of_tile(std::size_t tile, const Sizes& sizes) const;

  const Cpu& cpu_;
  layout::OneTiles tiles_;
  std::vector<layout::Extent> extents_;
  std::vector<Made> made_;
};

}  // namespace treadle::backend::cpu
