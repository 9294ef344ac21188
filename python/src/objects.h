// Tensors of torch and arrays of NumPy as Python hands them over, without a tuple for each.
#pragma once

#include <nanobind/nanobind.h>

#include "treadle/view.h"

namespace treadle::python {

// From now on tensors are read by `exchange`, torch.Tensor.__dlpack_c_exchange_api__ or None. What it
// cannot read as it is goes to `slowly`, which makes an array of it, as in array.h, or raises.
void read_tensors(const nanobind::object& exchange, const nanobind::object& slowly);

// From now on arrays are read as buffers, and what cannot be read so by `slowly`.
void read_arrays(const nanobind::object& slowly);

// Of a tensor or an array that its caller keeps.
View view_of_object(nanobind::handle object);

}  // namespace treadle::python
