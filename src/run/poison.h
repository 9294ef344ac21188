// Why a tile met poison: the interpreter is asked, pair by pair.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "layout/layout.h"
#include "run/poisoned.h"
#include "treadle/view.h"

namespace treadle::run {

struct PoisonProblem {
  ConstView q, k;
  double scale = 1;
  ir::Graph score_mod;
  std::vector<ConstView> score_memory;
  ir::Graph mask;
  std::vector<ConstView> mask_memory;
  const layout::Layout* layout = nullptr;
};

// Throws treadle::Error: the buffer, the dimension, the index and the pair, as the reference does.
[[noreturn]] void report(const PoisonProblem& problem, const Poisoned& where);

}  // namespace treadle::run
