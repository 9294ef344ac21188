// Ranges of memory, and stand-ins for what kernels cannot use.
#include "backend/cpu/placed.h"

#include <algorithm>
#include <utility>

#include "base/copy.h"

namespace treadle::backend::cpu {

RowInput::RowInput(const ConstView& given) : given_(given) {
  if (has_contiguous_rows(given)) return;
  auto copy = std::make_unique<Copy>(Copy{base::convert(given, given.dtype()), {}});
  copy->view = copy->tensor;
  copy_ = std::move(copy);
}

PlacedResult::PlacedResult(const View& wanted, bool in_private, DType type) : wanted_(&wanted) {
  if (!in_private) return;
  auto own = std::make_unique<Private>(Private{Tensor(type, wanted.shape()), {}, {}});
  own->view = own->tensor.view();
  own->computed = own->view;
  private_ = std::move(own);
}

void PlacedResult::deliver() const {
  if (private_) base::copy(*wanted_, private_->computed);
}

}  // namespace treadle::backend::cpu
