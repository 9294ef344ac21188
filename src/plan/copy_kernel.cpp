// The name of a copying kernel.
#include "plan/copy_kernel.h"

namespace treadle::plan {

base::Hash key(const CopySpec& spec) {
  const auto& [target, from, to, length] = spec;
  return base::Hasher().add("copy").add(hash(target)).add(from).add(to).add(length).finish();
}

}  // namespace treadle::plan
