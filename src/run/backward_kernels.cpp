// Which backward kernels a layout needs.
#include "run/backward_kernels.h"

namespace treadle::run {

void needed(const BackwardKernels& kernels, const layout::Layout& layout, Missing& missing) {
  // The longest to compile come first.
  if (layout.has_partial()) missing.add(kernels.masked);
  if (layout.has_full()) missing.add(kernels.full);
  missing.add(kernels.sum_dk);
  missing.add(kernels.sum_dv);
  missing.add(kernels.queries_to_lanes);
  missing.add(kernels.dout_to_lanes);
  missing.add(kernels.dq_to_rows);
  for (const CopyKernel* copy : {&kernels.load_q, &kernels.load_out, &kernels.store_dq,
                                 &kernels.store_dk, &kernels.store_dv})
    missing.add(*copy);
}

void all_of(const BackwardKernels& kernels, bool masked, Missing& missing) {
  for (const auto* kernel : {&kernels.full, &kernels.exact_full}) missing.add(*kernel);
  if (masked)
    for (const auto* kernel : {&kernels.masked, &kernels.exact_masked}) missing.add(*kernel);
  for (const auto* kernel :
       {&kernels.sum_dk, &kernels.sum_dv, &kernels.exact_sum_dk, &kernels.exact_sum_dv})
    missing.add(*kernel);
  for (const auto* kernel :
       {&kernels.queries_to_lanes, &kernels.dout_to_lanes, &kernels.dq_to_rows})
    missing.add(*kernel);
  for (const CopyKernel* copy :
       {&kernels.load_q, &kernels.load_k, &kernels.load_v, &kernels.load_out, &kernels.store_dq,
        &kernels.store_dk, &kernels.store_dv})
    missing.add(*copy);
}

}  // namespace treadle::run
