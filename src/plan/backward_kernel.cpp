// The name of a backward kernel: everything its code depends on.
#include "plan/backward_kernel.h"

namespace treadle::plan {

base::Key key(const BackwardKernelSpec& spec) {
  // A binding for each member: one that is added and forgotten here does not compile.
  const auto& [plan, score, score_facts, derivative, derivative_facts, masked, mask, mask_facts,
               exact_nonfinite, dropout] = spec;
  base::Hasher hasher;
  hasher.add("backward").add(hash(plan)).add(score.kind).add(masked).add(exact_nonfinite);
  hasher.add(dropout);
  // What the code does not read does not make it another kernel.
  if (score.kind != ScoreForm::Kind::plain) hasher.add(score.graph.key()).add(hash(score_facts));
  if (spec.derives()) hasher.add(derivative.graph.key()).add(hash(derivative_facts));
  hasher.add(derivative.contributions.size());
  // Which capture it is for is run's to know, not the code's.
  for (const auto& [slot, when, value, index] : derivative.contributions) {
    hasher.add(when).add(value).add(index.size());
    for (const int output : index) hasher.add(output);
  }
  if (masked) hasher.add(mask.key()).add(hash(mask_facts));
  return hasher.key();
}

}  // namespace treadle::plan
