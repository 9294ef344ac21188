// The kernel of sums over queries, which is nothing but the product `reduce`.
//
// In: a spec. Out: a module whose function `kernel` adds to dV or dK.
#include "emit/llvm/reduce.h"

#include <utility>

#include "emit/llvm/kernel_function.h"
#include "emit/llvm/products.h"

namespace treadle::emit::llvm {

Module emit_reduce(const plan::ReduceSpec& spec) {
  KernelFunction<plan::ReduceArgs> kernel("reduce", spec.target, spec.compute);
  reduce(kernel.build(), spec, kernel.args());
  return std::move(kernel).finish();
}

}  // namespace treadle::emit::llvm
