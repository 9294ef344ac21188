// The name of a copying kernel.
#include "plan/copy_kernel.h"

namespace treadle::plan {

base::Key key(const CopySpec& spec) {
  const auto& [target, from, to, length, scaled] = spec;
  base::Hasher hasher;
  hasher.add("copy").add(hash(target)).add(from).add(to).add(length).add(scaled);
  return hasher.key();
}

}  // namespace treadle::plan
