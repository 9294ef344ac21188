// Which backend runs a compiled function: the one place that knows all of them.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace treadle::api {

std::unique_ptr<const backend::Backend> make_backend(const backend::Program& program,
                                                     const Options& options);

}  // namespace treadle::api
