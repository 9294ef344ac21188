// A call on many ranks as the planner sees it, measured by this machine alone.
//
//   const PlannedCall call = planned_call("plan", mask, sizes, DType::bf16, workers);
//   const distributed::Assignment plan = call.assign(64, options);
#pragma once

#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/parallel.h"
#include "distributed/assignment.h"
#include "treadle/mod.h"

namespace treadle::cli {

struct PlannedCall {
  distributed::PlanCall call;
  std::vector<layout::Tiles> tiles;
  std::vector<distributed::PassWork> passes;
  double measure_ms = 0;

  // On so many ranks, with equal shards.
  [[nodiscard]] distributed::Assignment assign(int ranks,
                                               const distributed::PlanOptions& options) const;
};

// The same for a mask that would take too long to look at, from a layout of its only pass.
PlannedCall planned_call(const layout::Layout& layout, const backend::Sizes& sizes, DType dtype,
                         const base::Workers& workers);

// `dtype` is that of q, k and v. `name` is the caller's, in messages.
PlannedCall planned_call(std::string_view name, const MaskMod& mask, const backend::Sizes& sizes,
                         DType dtype, const base::Workers& workers);

}  // namespace treadle::cli
