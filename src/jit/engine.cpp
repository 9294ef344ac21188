// Enters: a key and how to make its module. Leaves: an address. Read Engine::address first, then
// State::make: a kernel comes from memory, else from disk, else from the compiler.
#include "jit/engine.h"

#include <llvm/IR/Module.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>

#include <atomic>

#include "base/error.h"
#include "jit/compiler.h"
#include "jit/kernel_cache.h"
#include "jit/session.h"

namespace treadle::jit {
namespace {

void check_runs_here(const plan::Target& target) {
  const llvm::Triple here(llvm::sys::getProcessTriple());
  const llvm::Triple there(target.triple);
  if (here.getArch() == there.getArch() && here.getOS() == there.getOS()) return;
  base::fail("jit: target {} is for {}, this process for {}; its code cannot be loaded here",
             target.name, target.triple, here.str());
}

}  // namespace

struct Engine::State {
  explicit State(EngineOptions given) : options(std::move(given)) {}

  const EngineOptions options;
  Session session;
  KernelCache kernels;
  std::atomic<std::int64_t> memory_hits = 0, disk_hits = 0, compiled = 0;

  void* make(const base::Hash& name, const plan::Target& target, const Emit& emit,
             const std::string& symbol);
};

void* Engine::State::make(const base::Hash& name, const plan::Target& target, const Emit& emit,
                          const std::string& symbol) {
  check_runs_here(target);
  emit::Module module = emit();
  Compiler compiler(target);
  compiler.optimise(*module.module);
  const std::string object = compiler.object(*module.module);
  ++compiled;
  return session.load(to_string(name), object, symbol);
}

Engine::Engine(EngineOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Engine::~Engine() = default;

void* Engine::address(const base::Hash& key, const plan::Target& target, const Emit& emit,
                      const std::string& symbol) {
  State& state = *state_;
  const base::Hash name = base::Hasher().add(key).add(plan::hash(target)).add(symbol).finish();
  bool made = false;
  void* kernel = state.kernels.find(name);
  if (kernel == nullptr) {
    kernel = state.kernels.get(name, [&] {
      made = true;
      return state.make(name, target, emit, symbol);
    });
  }
  if (!made) ++state.memory_hits;
  return kernel;
}

EngineStatistics Engine::statistics() const {
  return {.memory_hits = state_->memory_hits,
          .disk_hits = state_->disk_hits,
          .compiled = state_->compiled};
}

}  // namespace treadle::jit
