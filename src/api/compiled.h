// What compile() makes and calls use.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "api/cpu.h"
#include "ir/joint.h"
#include "treadle/attention.h"

namespace treadle {

struct Attention::Compiled {
  ir::Graph score_mod;  // simplified; a float
  ir::Graph mask;       // simplified; a bool
  ir::Joint joint;      // derivative of the score mod by the score and the captures in `gradients`
  std::vector<Capture> captures;  // as given when compiled, each with its name
  std::vector<std::string> gradients;
  std::optional<double> scale;
  Save save = Save::lse;
  Backend backend = Backend::reference;
  std::unique_ptr<const api::Cpu> cpu;  // of Backend::cpu
};

}  // namespace treadle
