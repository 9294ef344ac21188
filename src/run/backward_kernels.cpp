// Which backward kernels a layout needs.
#include "run/backward_kernels.h"

namespace treadle::run {

void needed(const BackwardKernels& kernels, const layout::Layout& layout,
            std::vector<std::function<void()>>& missing) {
  const auto add = [&](const auto& kernel) {
    if (!kernel.ready()) missing.emplace_back([&kernel] { kernel.prepare(); });
  };
  // The longest to compile come first.
  if (layout.has_partial()) add(kernels.masked);
  if (layout.has_full()) add(kernels.full);
  add(kernels.sum_dk);
  add(kernels.sum_dv);
  add(kernels.queries_to_lanes);
  add(kernels.dout_to_lanes);
  add(kernels.dq_to_rows);
  for (const CopyKernel* copy : {&kernels.load_q, &kernels.load_out, &kernels.store_dq,
                                 &kernels.store_dk, &kernels.store_dv})
    add(*copy);
}

}  // namespace treadle::run
