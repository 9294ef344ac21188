// Derive: reverse mode. From a score mod to the joint graph that the backward pass evaluates.
//
//   derive("score * gate[h]", {"gate"})   ->   gradient of the score: grad * gate[h]
//                                              gate[h] += grad * score
//
// `grad` is the incoming gradient, that of the modified score. Derivatives at ties are PyTorch's;
// docs/ir.md lists them. where() differentiates only its chosen side: the other side contributes
// exactly nothing, even if its derivative is inf, NaN or poisoned.
#pragma once

#include <string>
#include <vector>

#include "ir/joint.h"

namespace treadle::passes {

// `wanted` names the captured buffers whose gradients are asked for; each must be a slot of the
// graph and hold floats.
ir::Joint derive(const ir::Graph& score_mod, const std::vector<std::string>& wanted);

}  // namespace treadle::passes
