// Backend::cpu for those who only make and ask it: nothing of kernels or of the jit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"

namespace treadle::backend::cpu {

// An empty target name is the machine's own; throws treadle::Error for one that cannot run here.
std::unique_ptr<const Backend> make_cpu(const Program& program, const std::string& target);

// Kernels that this process has compiled or loaded from disk so far.
std::int64_t kernels_made();

// Frees working memory that no call is using; how many bytes that were.
std::int64_t release_memory();

}  // namespace treadle::backend::cpu
