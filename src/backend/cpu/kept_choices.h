// KeptChoices: query orders and tile heights, chosen once for lengths of a class.
//
//   KeptChoices kept;
//   kept.find(strided, {.queries = 5000, .keys = 5000}, weights, workers)->best()    chooses,
//   kept.find(strided, {.queries = 6000, .keys = 6000}, weights, workers)->best()    does not
//
// Choosing takes about as long as a short call, and a sequence that grows asks again at every step.
// So lengths beyond 2048 are rounded up to a power of two, and the choice is made for the rounded
// length: then it is the same whichever length came first, and so are the bits of sums over queries.
// Shorter lengths are taken as they are; positions that do not begin at 0 are rounded down likewise.
// Few queries are one tile: there is nothing to choose.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/hash.h"
#include "base/kept.h"
#include "layout/choose.h"

namespace treadle::backend::cpu {

struct Chosen {
  layout::Extent extent;                   // what candidates were costed for
  std::vector<layout::Choice> candidates;  // best first; at least one

  [[nodiscard]] const layout::Choice& best() const { return candidates.front(); }
};

class KeptChoices {
 public:
  static constexpr std::size_t most = 64;

  // Scalars of the mask count as their values. What captured arrays hold may change, so a mask that
  // reads some is chosen for anew, and for its very lengths.
  std::shared_ptr<const Chosen> find(const layout::Mask& mask, const layout::Extent& extent,
                                     const layout::TileWeights& weights,
                                     const base::Workers& workers);

  // How often candidates were costed.
  [[nodiscard]] std::int64_t times_chosen() const { return times_chosen_; }

 private:
  std::shared_ptr<const Chosen> choose(const layout::Mask& mask, const layout::Extent& extent,
                                       const layout::TileWeights& weights,
                                       const base::Workers& workers);

  base::Kept<base::Hash, std::shared_ptr<const Chosen>> kept_{most};
  std::atomic<std::int64_t> times_chosen_ = 0;
};

// The lengths that a choice is made for.
layout::Extent class_of(const layout::Extent& extent);

}  // namespace treadle::backend::cpu
