// Backend::reference: dense, slow, exact.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace treadle::backend::reference {

std::unique_ptr<const Backend> make_reference(const Program& program);

}  // namespace treadle::backend::reference
