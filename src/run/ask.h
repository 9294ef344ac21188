// A kernel that is kept after it was first asked for.
#pragma once

#include <atomic>

#include "jit/engine.h"

namespace treadle::run {

// `make_spec` is called, and what `emit` makes of the spec compiled, when nothing is kept yet.
using BlockKernel = void(const plan::ForwardKernelArgs*);
using SlopeKernel = void(const plan::BackwardKernelArgs*);
using FlipKernel = void(const plan::TransposeArgs*);
using CopyKernel = void(const plan::CopyArgs*);
using ReduceKernel = void(const plan::ReduceArgs*);

template <class Kernel, class MakeSpec>
Kernel* ask(std::atomic<Kernel*>& kept, jit::Engine& engine, const MakeSpec& make_spec) {
  if (Kernel* kernel = kept.load(std::memory_order_acquire)) return kernel;
  const auto spec = make_spec();
  auto* kernel = reinterpret_cast<Kernel*>(const_cast<void*>(engine.code(spec).get()));
  kept.store(kernel, std::memory_order_release);
  return kernel;
}

}  // namespace treadle::run
