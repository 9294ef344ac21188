// Why a tile met poison: the interpreter is asked, pair by pair.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "layout/layout.h"
#include "run/key_source.h"
#include "run/poisoned.h"
#include "treadle/view.h"

namespace treadle::run {

struct PoisonProblem {
  ConstView q;
  const KeySource& keys;
  double scale = 1;
  DType compute = DType::f32;  // of the kernels
  ir::Graph score_mod;
  std::vector<ConstView> score_memory;
  ir::Graph mask;
  std::vector<ConstView> mask_memory;
  const layout::Layout* layout = nullptr;
};

// Throws treadle::ModError: the buffer, the dimension, the index and the pair, as the reference
// does. Where the definition has no poison, because it rounds otherwise than a kernel or because a
// capture has changed since, the pair is found in the kernel's float or not at all.
[[noreturn]] void report(const PoisonProblem& problem, const Poisoned& where);

}  // namespace treadle::run
