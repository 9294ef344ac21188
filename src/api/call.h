// What calls have in common: their captures bound, and where they run.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "api/compiled.h"
#include "backend/backend.h"
#include "base/parallel.h"

namespace treadle::api {

// Captures bound to the slots of the program's graphs.
backend::Bindings bindings_of(const backend::Program& program,
                              const std::vector<const Capture*>& bound);
// The same into `bindings`, whose memory is used again.
void find_bindings(const backend::Program& program, const std::vector<const Capture*>& bound,
                   backend::Bindings& bindings);

// Who works on the call: its executor, or oneTBB on all cores, made once; until its stop. `name` is
// the call's, in messages.
base::Workers workers_of(std::string_view name, const Call& call);

double scale_of(const Attention::Compiled& compiled, std::int64_t dim);

}  // namespace treadle::api
