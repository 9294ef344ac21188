// Ranges of memory, and stand-ins for what kernels cannot use.
#include "backend/cpu/placed.h"

#include <algorithm>

#include "base/copy.h"

namespace treadle::backend::cpu {
RowInput::RowInput(const ConstView& given) : view_(given) {
  if (has_contiguous_rows(given)) return;
  copy_ = base::convert(given, given.dtype());
  view_ = copy_;
}

PlacedResult::PlacedResult(const View& wanted, bool in_private, DType type)
    : wanted_(wanted), now_(wanted) {
  if (!in_private) return;
  tensor_ = Tensor(type, wanted.shape());
  now_ = tensor_;
  computed_ = now_;
}

void PlacedResult::deliver() const {
  if (now_.data() != wanted_.data()) base::copy(wanted_, computed_);
}

}  // namespace treadle::backend::cpu
