// Kernels from memory, else from disk, else from the compiler.
//
// In: a description, or a key and how to make its module. Out: code. Read Engine::code() first, then
// State::make().
#include "jit/engine.h"

#include <fmt/format.h>
#include <llvm-c/Core.h>
#include <llvm/IR/Module.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "base/dump.h"
#include "base/error.h"
#include "emit/llvm/emit.h"
#include "jit/compiler.h"
#include "jit/disk_cache.h"
#include "jit/kernel_cache.h"
#include "jit/llvm_thread.h"
#include "jit/prune.h"
#include "jit/sanitize.h"
#include "jit/session.h"
#include "treadle/version.h"

namespace treadle::jit {
namespace {

using base::Dump;

// What every kernel of an engine depends on. Perf and gdb only watch.
base::Key surroundings(const EngineOptions& options) {
  // Of the library that was found, which may be newer than its headers were.
  unsigned major = 0, minor = 0, patch = 0;
  LLVMGetVersion(&major, &minor, &patch);
  return base::Hasher()
      .add(version())
      .add(options.build)
      .add(major)
      .add(minor)
      .add(patch)
      .add(options.address_sanitizer)
      .key();
}

void check_runs_here(const plan::Target& target) {
  const llvm::Triple here(llvm::sys::getProcessTriple());
  const llvm::Triple there(target.triple);
  if (here.getArch() == there.getArch() && here.getOS() == there.getOS()) return;
  base::fail("jit: target {} is for {}, this process for {}; its code cannot be loaded here",
             target.name, target.triple, here.str());
}

// Milliseconds since the last lap.
class Stopwatch {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double, std::milli>(now - std::exchange(last_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

struct Request {
  base::Key key;
  std::string name;
  const plan::Target& target;
  const Engine::Emit& emit;
  const std::string& symbol;
};

// For people: what it is and a name to look for on disk.
std::string title(const Request& request) {
  return fmt::format("{} {}", request.symbol, request.name);
}

void dump_time(const Request& request, std::string_view text) {
  if (base::dump_wanted(Dump::time)) base::dump(Dump::time, title(request), text);
}

void dump_assembly(const Request& request, Compiler& compiler, const llvm::Module& module) {
  if (!base::dump_wanted(Dump::assembly)) return;
  base::dump(Dump::assembly, title(request), compiler.assembly(*llvm::CloneModule(module)));
}

}  // namespace

struct Engine::State {
  struct Compiled {
    Code kernel;
    std::string object, times;
  };

  explicit State(EngineOptions given)
      : options(std::move(given)),
        common(surroundings(options)),
        disk(options.build.empty() ? "" : options.cache_folder),
        session(options),
        kernels(options.capacity) {}

  const EngineOptions options;
  const base::Key common;
  const DiskCache disk;
  Session session;
  KernelCache kernels;
  std::atomic<std::int64_t> memory_hits = 0, disk_hits = 0, compiled = 0;

  Code make(const Request& request);
  Code make_from_disk(const Request& request);
  Code compile(const Request& request);
  Compiled compile_in_llvm(const Request& request);
};

// nullptr when it is not there. A library that it calls may have lost a function since; such a file
// would stay in the way of every start.
Engine::Code Engine::State::make_from_disk(const Request& request) {
  Stopwatch watch;
  const std::optional<std::string> object = disk.read(request.key);
  if (!object) return nullptr;
  const double read = watch.lap();
  Code kernel;
  try {
    kernel = session.load(request.name, *object, request.symbol);
  } catch (const base::InternalError& error) {
    disk.remove(request.key);
    dump_time(request, fmt::format("disk, removed: {}", error.what()));
    return nullptr;
  }
  const double link = watch.lap();
  ++disk_hits;
  dump_time(request,
            fmt::format("disk, {:.2f} ms: read {:.2f}, link {:.2f}", read + link, read, link));
  return kernel;
}

// Inside LLVM: the object and its code, and in which steps the time went.
Engine::State::Compiled Engine::State::compile_in_llvm(const Request& request) {
  Stopwatch watch;
  emit::llvm::Module module = request.emit();
  const double emit = watch.lap();
  if (base::dump_wanted(Dump::ir))
    base::dump(Dump::ir, title(request), emit::llvm::to_text(module));

  watch.lap();
  leave_room_in_front(*module.module);
  Compiler compiler(request.target, options.address_sanitizer);
  compiler.optimise(*module.module);
  const double passes = watch.lap();
  dump_assembly(request, compiler, *module.module);

  watch.lap();
  std::string object = compiler.object(*module.module);
  const double code = watch.lap();
  Code kernel = session.load(request.name, object, request.symbol);
  const double link = watch.lap();
  return {.kernel = std::move(kernel),
          .object = std::move(object),
          .times = fmt::format(
              "compiled, {:.2f} ms: emit {:.2f}, passes {:.2f}, code {:.2f}, link {:.2f}",
              emit + passes + code + link, emit, passes, code, link)};
}

Engine::Code Engine::State::compile(const Request& request) {
  Compiled made;
  in_llvm([&] { made = compile_in_llvm(request); });
  ++compiled;
  disk.write(request.key, made.object);
  prune_if_due(disk.folder(), options.cache_limits);
  dump_time(request, made.times);
  return made.kernel;
}

Engine::Code Engine::State::make(const Request& request) {
  check_runs_here(request.target);
  // On disk there is neither IR nor assembly to show.
  const bool look_inside = base::dump_wanted(Dump::ir) || base::dump_wanted(Dump::assembly);
  Code kernel = look_inside ? nullptr : make_from_disk(request);
  return kernel != nullptr ? kernel : compile(request);
}

Engine::Engine(EngineOptions options) {
  if (options.address_sanitizer) check_sanitizer_runtime();
  state_ = std::make_unique<State>(std::move(options));
}
Engine::~Engine() = default;

Engine::Code Engine::code(const plan::KernelSpec& spec) {
  return code(key(spec), target_of(spec), [&] { return emit::llvm::emit(spec); });
}

Engine::Code Engine::code(const base::Key& key, const plan::Target& target, const Emit& emit,
                          const std::string& symbol) {
  State& state = *state_;
  base::Key full =
      base::Hasher().add(state.common).add(key).add(plan::hash(target)).add(symbol).key();
  const std::string name = to_string(full.hash());
  const Request request{
      .key = std::move(full), .name = name, .target = target, .emit = emit, .symbol = symbol};
  if (Code kernel = state.kernels.find(request.key)) {
    ++state.memory_hits;
    dump_time(request, "memory");
    return kernel;
  }
  bool made = false;
  Code kernel = state.kernels.get(request.key, [&] {
    made = true;
    return state.make(request);
  });
  if (!made) ++state.memory_hits;
  return kernel;
}

EngineStatistics Engine::statistics() const {
  return {.memory_hits = state_->memory_hits,
          .disk_hits = state_->disk_hits,
          .compiled = state_->compiled,
          .in_memory = static_cast<std::int64_t>(state_->kernels.size())};
}

}  // namespace treadle::jit
