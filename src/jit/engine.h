// The Engine: descriptions of kernels in, code out; each compiled once.
//
//   Engine engine(EngineOptions::from_environment());
//   plan::Kernel<plan::CopyArgs> copy = engine.get(plan::CopySpec{...});
//   copy(args);
//
// A kernel is looked up in memory, then on disk, then made. Threads that ask for the same kernel at
// the same time wait for one of them to make it. A kernel that is held is never freed; of the others
// the engine keeps a number, those that were asked for last. Compiling runs out of memory cleanly:
// jit/llvm_thread.h says how. A forked child finds what its parent had.
//
// On disk an object is written under a temporary name and renamed, with its key and a hash in front;
// one that is damaged or does not load, or a folder that cannot be read or written, costs a compile
// and is no error. TREADLE_DUMP=time says where each kernel came from; ir and asm show those made,
// and then all are made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/hash.h"
#include "jit/build_id.h"
#include "jit/cache_limits.h"
#include "plan/kernel.h"
#include "plan/kernel_spec.h"

namespace treadle::emit::llvm {
struct Module;
}

namespace treadle::jit {

struct EngineOptions {
  std::string cache_folder;        // empty: nothing on disk
  CacheLimits cache_limits;        // of that folder
  std::size_t capacity = 1024;     // kernels in memory; those that are held may be more
  bool perf = false;               // tell perf about kernels (perf record -k 1, perf inject -j)
  bool gdb = false;                // tell debuggers about kernels
  bool address_sanitizer = false;  // kernels check their own reads and writes
  // Tells this build of Treadle from others; empty: nothing on disk, since another build's kernels
  // could not be told from ours.
  std::string build = build_id();

  // TREADLE_CACHE_DIR (empty: none), else XDG_CACHE_HOME/treadle, else ~/.cache/treadle;
  // TREADLE_CACHE_SIZE; TREADLE_JIT=perf,gdb; TREADLE_SANITIZE=address.
  static EngineOptions from_environment();
};

// Counts since the engine was made, and how many kernels it has now.
struct EngineStatistics {
  std::int64_t memory_hits = 0, disk_hits = 0, compiled = 0, in_memory = 0;
};

class Engine {
 public:
  using Code = std::shared_ptr<const void>;  // the address of a function, held
  using Emit = std::function<emit::llvm::Module()>;

  explicit Engine(EngineOptions options);
  ~Engine();

  template <class Spec>
  plan::Kernel<typename Spec::Args> get(const Spec& spec) {
    return plan::Kernel<typename Spec::Args>(code(plan::KernelSpec(spec)));
  }
  Code code(const plan::KernelSpec& spec);

  // The function called `symbol` in the module that `emit` makes. The key names everything the
  // module depends on; target, LLVM's version, this build of Treadle and the engine's options are
  // added here. Every symbol is a kernel of its own, with its own copy of the module.
  Code code(const base::Key& key, const plan::Target& target, const Emit& emit,
            const std::string& symbol = "kernel");

  [[nodiscard]] EngineStatistics statistics() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A kernel's code as assembly: for explain.
std::string assembly_of(const plan::KernelSpec& spec);

// What a kernel costs before it runs, and what became of it.
struct CodeFacts {
  double ms = 0;           // to make it: IR, passes, code
  std::int64_t bytes = 0;  // of code
  // Values that went to the stack for want of registers, and came back: instructions, in all of it.
  std::int64_t spills = 0, reloads = 0;
};
CodeFacts facts_of(const plan::KernelSpec& spec);

// "19.1.7"
std::string llvm_version();

}  // namespace treadle::jit
