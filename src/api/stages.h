// What every stage of compile() makes of a user's functions, for those who look inside: explain,
// the assembly it prints, layouts of masks, checks of benchmarks.
#pragma once

#include <vector>

#include "backend/backend.h"
#include "treadle/attention.h"

namespace treadle::api {

struct Stages {
  std::vector<Capture> captures;  // as given, each with its name
  ir::Graph traced_score, traced_mask;
  backend::Program program;  // simplified, and the derivative
};

// Checks options, traces, simplifies and derives: see compile.cpp.
Stages stages_of(const Options& options);

// The views of the captures that the slots name.
std::vector<ConstView> memory_of(std::span<const ir::Slot> slots,
                                 const std::vector<Capture>& captures);

}  // namespace treadle::api
