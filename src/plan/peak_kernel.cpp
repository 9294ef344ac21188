// The name of the loop that speed is measured by.
#include "plan/peak_kernel.h"

namespace treadle::plan {

base::Key key(const PeakSpec& spec) {
  const auto& [target, compute] = spec;
  return base::Hasher().add("peak").add(hash(target)).add(compute).key();
}

}  // namespace treadle::plan
