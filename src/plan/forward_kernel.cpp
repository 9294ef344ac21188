// The name of a forward kernel: everything its code depends on.
#include "plan/forward_kernel.h"

namespace treadle::plan {

base::Key key(const ForwardKernelSpec& spec) {
  // A binding for each member: one that is added and forgotten here does not compile.
  const auto& [plan, score, score_facts, masked, mask, mask_facts, exact_nonfinite, dropout] = spec;
  base::Hasher hasher;
  hasher.add("forward").add(hash(plan)).add(score.kind).add(masked).add(exact_nonfinite);
  hasher.add(dropout);
  // What the code does not read does not make it another kernel.
  if (score.kind != ScoreForm::Kind::plain) hasher.add(score.graph.key()).add(hash(score_facts));
  if (masked) hasher.add(mask.key()).add(hash(mask_facts));
  return hasher.key();
}

}  // namespace treadle::plan
