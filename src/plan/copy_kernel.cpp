// The name of a copying kernel.
#include "plan/copy_kernel.h"

namespace treadle::plan {

base::Key key(const CopySpec& spec) {
  const auto& [target, from, to, length] = spec;
  return base::Hasher().add("copy").add(hash(target)).add(from).add(to).add(length).key();
}

}  // namespace treadle::plan
