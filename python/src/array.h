// Arrays as Python hands them over: (address, element type, shape, strides in elements), or a tensor
// of torch or an array of NumPy.
//
// A plain tuple costs a tenth of what an array object of any library's protocol does, and torch's
// bfloat16 has no protocol that NumPy knows.
#pragma once

#include <nanobind/nanobind.h>

#include "objects.h"
#include "treadle/view.h"

namespace treadle::python {

namespace nb = nanobind;

inline Dims dims_of(nb::handle numbers) {
  Dims dims;
  for (const nb::handle number : numbers) dims.push_back(nb::cast<std::int64_t>(number));
  return dims;
}

inline View view_of_array(nb::handle array) {
  const auto parts = nb::cast<nb::tuple>(array);
  auto* data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(parts[0]));
  return View(data, static_cast<DType>(nb::cast<int>(parts[1])), dims_of(parts[2]),
              dims_of(parts[3]));
}

inline View view_of(nb::handle array) {
  return nb::isinstance<nb::tuple>(array) ? view_of_array(array) : view_of_object(array);
}

}  // namespace treadle::python
