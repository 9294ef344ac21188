// Every kind of kernel there is, as one value: what an emitter turns into code and a cache looks
// up.
#pragma once

#include <variant>

#include "plan/backward_kernel.h"
#include "plan/copy_kernel.h"
#include "plan/decode_kernel.h"
#include "plan/forward_kernel.h"
#include "plan/merge_kernel.h"
#include "plan/peak_kernel.h"
#include "plan/reduce_kernel.h"
#include "plan/transpose_kernel.h"

namespace treadle::plan {

using KernelSpec = std::variant<ForwardKernelSpec, BackwardKernelSpec, DecodeKernelSpec, ReduceSpec,
                                CopySpec, TransposeSpec, MergeSpec, PeakSpec>;

base::Key key(const KernelSpec& spec);
const Target& target_of(const KernelSpec& spec);

}  // namespace treadle::plan
