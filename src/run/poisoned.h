// Where a call met poison: it read outside a captured buffer, or divided by zero, at a visible pair.
// Then nothing that was written means anything.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "layout/layout.h"

namespace treadle::run {

struct Poisoned {
  std::int64_t b = 0, h = 0, tile = 0;
  std::size_t term = 0;  // of the mask, whose tiles are meant
};

// The first poisoned tile of a pass, whichever thread meets it.
class FirstPoisoned {
 public:
  // Of a pass whose terms are `terms` of the mask's, from number `first_term` on.
  explicit FirstPoisoned(const layout::Layout& layout, std::size_t first_term = 0,
                         std::size_t terms = 1)
      : layout_(layout), first_term_(first_term), terms_(static_cast<std::int64_t>(terms)) {}

  // Takes note of a tile if a kernel has set `flag`, and clears it. `where.term` counts from the
  // pass's first one.
  void note(std::int64_t& flag, const Poisoned& where) {
    if (flag != 0) [[unlikely]] {
      flag = 0;
      report(where);
    }
  }
  [[nodiscard]] std::optional<Poisoned> found() const;

 private:
  void report(const Poisoned& where);

  const layout::Layout& layout_;
  std::size_t first_term_;
  std::int64_t terms_;
  std::atomic<std::int64_t> first_{
      -1};  // batches, heads, tiles and terms counted through; -1: none
};

}  // namespace treadle::run
