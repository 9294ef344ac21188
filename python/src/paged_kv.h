// PagedKV for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace treadle::python {

// Adds the class to treadle._core. Its calls keep Python's lock: a cache has none of its own, so
// calls of several threads take turns.
void bind_paged_kv(nanobind::module_& m);

}  // namespace treadle::python
