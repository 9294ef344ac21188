// On how many threads a call runs.
#pragma once

#include <memory>

#include "treadle/executor.h"

namespace treadle::python {

// An executor of that many threads (0: all cores; more than all: all), kept for the next call.
std::shared_ptr<Executor> executor_for(int threads);

// From now on the caller's thread alone: a forked child has none of its parent's threads.
void stay_serial();

}  // namespace treadle::python
