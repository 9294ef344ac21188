// Backend::cpu for those who only make and ask it: nothing of kernels or of the jit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"

namespace treadle::backend::cpu {

// An empty target name is the machine's own; throws treadle::Error for one that cannot run here.
// `exact` runs what meets a NaN in a backward call: it decides where the NaN belongs.
std::unique_ptr<const Backend> make_cpu(const Program& program, const std::string& target,
                                        std::unique_ptr<const Backend> exact);

// Kernels that this process has compiled or loaded from disk so far.
std::int64_t kernels_made();

}  // namespace treadle::backend::cpu
