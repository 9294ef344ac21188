// treadle._core.plan, GroupPlan, GroupExchange: plans and calls of several processes.
#pragma once

#include <nanobind/nanobind.h>

namespace treadle::python {

void bind_distributed(nanobind::module_& m);

}  // namespace treadle::python
