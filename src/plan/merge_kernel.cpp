// The name of a merging kernel.
#include "plan/merge_kernel.h"

namespace treadle::plan {

base::Key key(const MergeSpec& spec) {
  const auto& [target, compute, width, value_dim] = spec;
  return base::Hasher().add("merge").add(hash(target)).add(compute).add(width).add(value_dim).key();
}

}  // namespace treadle::plan
