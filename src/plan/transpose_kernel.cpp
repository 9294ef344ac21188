// The name of a transposing kernel.
#include "plan/transpose_kernel.h"

namespace treadle::plan {

base::Key key(const TransposeSpec& spec) {
  const auto& [target, compute, width, length, row, to_rows] = spec;
  return base::Hasher()
      .add("transpose")
      .add(hash(target))
      .add(compute)
      .add(width)
      .add(length)
      .add(row)
      .add(to_rows)
      .key();
}

}  // namespace treadle::plan
