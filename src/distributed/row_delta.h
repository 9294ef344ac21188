// rowsum(dO * O) - dlse of this rank's rows, as one machine's backward has it (run/row_terms.h): out stays at home.
#pragma once

#include "base/parallel.h"
#include "distributed/given.h"
#include "distributed/held_plan.h"
#include "treadle/tensor.h"

namespace treadle::distributed {

// [batch, heads, rows of this rank], of the compute type.
Tensor delta_of(const Given& given, const Plan::Held& held, const base::Workers& workers);

}  // namespace treadle::distributed
