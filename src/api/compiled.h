// What compile() makes and calls use.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/call_room.h"
#include "backend/backend.h"
#include "base/hash.h"
#include "base/idle.h"
#include "treadle/attention.h"

namespace treadle {

struct Attention::Compiled {
  backend::Program program;
  base::Hash mask;                // of the program's, by which layouts are known
  std::vector<Capture> captures;  // as given when compiled, each with its name
  std::vector<std::string> gradients;
  std::optional<double> scale;
  Save save = Save::lse;
  std::unique_ptr<const backend::Backend> backend;
  mutable base::Idle<api::CallRoom> rooms = {};
};

}  // namespace treadle
