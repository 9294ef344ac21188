// A kernel that is kept after it was first asked for.
#pragma once

#include <atomic>

#include "jit/engine.h"

namespace treadle::run {

// `make_spec` is called, and what `emit` makes of the spec compiled, when nothing is kept yet.
template <class Kernel, class MakeSpec, class Emit>
Kernel* ask(std::atomic<Kernel*>& kept, jit::Engine& engine, const plan::Target& target,
            const MakeSpec& make_spec, const Emit& emit) {
  if (Kernel* kernel = kept.load(std::memory_order_acquire)) return kernel;
  const auto spec = make_spec();
  Kernel* kernel = engine.function<Kernel>(key(spec), target, [&] { return emit(spec); });
  kept.store(kernel, std::memory_order_release);
  return kernel;
}

}  // namespace treadle::run
