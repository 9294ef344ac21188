// Draws who computes what: queries x keys, a colour for each rank, light where the queries are
// another rank's.
#pragma once

#include <string>

#include "cli/planned_call.h"
#include "picture/sheet.h"

namespace treadle::cli {

// Of the first batch entry and the first key head.
picture::Sheet plan_picture(const std::string& title, const layout::Mask& mask,
                            const PlannedCall& call, const distributed::Assignment& plan, int ranks,
                            Executor& executor);

}  // namespace treadle::cli
