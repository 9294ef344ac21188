// The memory that calls leave behind, given back.
#include "treadle/memory.h"

#include "backend/cpu/make_cpu.h"

namespace treadle {

std::int64_t release_memory() { return backend::cpu::release_memory(); }

}  // namespace treadle
