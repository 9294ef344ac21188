// The kernels of a forward call as assembly, for any processor of plan's table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/forward_kernel.h"
#include "plan/target.h"
#include "treadle/attention.h"

namespace treadle::cli {

struct AssemblyRequest {
  bool wanted = false;
  std::int64_t dim = 64;
};

// Of f32 kernels for ordinary calls: reads stay inside, queries in their own order.
std::string assembly_text(const Options& options, const AssemblyRequest& request,
                          const plan::Target& target);

// The same kernels, by what each is for.
struct NamedKernel {
  std::string name;
  plan::ForwardKernelSpec spec;
};
std::vector<NamedKernel> ordinary_kernels(const Options& options, std::int64_t dim,
                                          const plan::Target& target);

}  // namespace treadle::cli
