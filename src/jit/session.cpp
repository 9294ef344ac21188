// ORC and JITLink, with less than LLJIT around them: an object is compiled before it comes here, so
// a session needs no target machine, and one read from disk is loaded within a millisecond.
#include "jit/session.h"

#include <fmt/format.h>
#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/ExecutionUtils.h>
#include <llvm/ExecutionEngine/Orc/ExecutorProcessControl.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/Support/MemoryBuffer.h>
#if __has_include(<llvm/ExecutionEngine/Orc/SelfExecutorProcessControl.h>)
#include <llvm/ExecutionEngine/Orc/SelfExecutorProcessControl.h>
#endif

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "jit/code_memory.h"
#include "jit/debugging.h"
#include "jit/llvm_thread.h"

namespace treadle::jit {
namespace {

template <class T>
T value_of(llvm::Expected<T> expected) {
  if (!expected) base::internal_error("jit: {}", llvm::toString(expected.takeError()));
  return std::move(*expected);
}

// Where an object's undefined names are looked for, in this order. The libraries are asked for by
// name because a process that opened Treadle privately, as Python does, shows neither them nor what
// they hold; where one does not exist the process itself has to have its functions.
constexpr std::array<const char*, 3> libraries{nullptr /* the process */, "libm.so.6",
                                               "libmvec.so.1"};

// What perf and gdb do for each kernel are actions that CodeMemory does not know.
std::unique_ptr<llvm::jitlink::JITLinkMemoryManager> make_memory(const EngineOptions& options) {
  if (!options.perf && !options.gdb) return std::make_unique<CodeMemory>();
  return value_of(llvm::jitlink::InProcessMemoryManager::Create());
}

}  // namespace

// All of LLVM's that a session needs. It is touched only in_llvm().
struct Session::Orc {
  llvm::orc::ExecutionSession session;
  llvm::orc::ObjectLinkingLayer objects;
  llvm::orc::JITDylib& outside;
  std::atomic<std::uint64_t> loaded = 0;

  // A failed lookup says only that it failed; why is told here, by default on stderr.
  std::mutex reports_mutex;
  std::string reports;

  // Work is done by the thread that asks for it.
  explicit Orc(const EngineOptions& options)
      : session(value_of(llvm::orc::SelfExecutorProcessControl::Create(
            nullptr, std::make_unique<llvm::orc::InPlaceTaskDispatcher>()))),
        objects(session, make_memory(options)),
        outside(session.createBareJITDylib("outside")) {
    for (const char* library : libraries) {
      auto found = llvm::orc::DynamicLibrarySearchGenerator::Load(library, /*GlobalPrefix=*/'\0');
      if (found) {
        outside.addGenerator(std::move(*found));
      } else {
        llvm::consumeError(found.takeError());
      }
    }
    if (options.perf) tell_perf(session, objects);
    if (options.gdb) tell_gdb(session, objects);
    session.setErrorReporter([this](llvm::Error error) {
      const std::lock_guard lock(reports_mutex);
      reports += llvm::toString(std::move(error)) + '\n';
    });
  }
  Orc(const Orc&) = delete;
  Orc& operator=(const Orc&) = delete;
  ~Orc() { llvm::consumeError(session.endSession()); }

  llvm::orc::JITDylib& make_library(const std::string& name) {
    // Kernels of one name may be there at once: one that is held though the cache forgot it.
    llvm::orc::JITDylib& library = session.createBareJITDylib(fmt::format("{}.{}", name, ++loaded));
    library.addToLinkOrder(outside);
    return library;
  }

  llvm::Expected<llvm::orc::ExecutorSymbolDef> load(llvm::orc::JITDylib& library,
                                                    std::string_view object,
                                                    const std::string& symbol) {
    llvm::Error error =
        objects.add(library, llvm::MemoryBuffer::getMemBufferCopy({object.data(), object.size()}));
    if (error) return error;
    return session.lookup({&library}, symbol);
  }

  void remove(llvm::orc::JITDylib& library) { llvm::consumeError(session.removeJITDylib(library)); }

  std::string take_reports() {
    const std::lock_guard lock(reports_mutex);
    return std::exchange(reports, {});
  }
};

// Frees what it has inside LLVM, as long as that can be done; else it stays to the end.
struct Session::State {
  Orc* orc = nullptr;

  explicit State(const EngineOptions& options) {
    in_llvm([&] { orc = new Orc(options); });
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    free_in_llvm([this] { delete orc; });
  }

  template <class Free>
  static void free_in_llvm(const Free& free) {
    if (llvm_is_lost()) return;
    try {
      in_llvm(free);
    } catch (const std::exception&) {  // no memory, no threads: it stays
    }
  }
};

Session::Session(const EngineOptions& options) : state_(std::make_shared<State>(options)) {}
Session::~Session() = default;

Code Session::load(const std::string& name, std::string_view object, const std::string& symbol) {
  Code code;
  in_llvm([&] {
    Orc& orc = *state_->orc;
    llvm::orc::JITDylib& library = orc.make_library(name);
    auto address = orc.load(library, object, symbol);
    if (!address) {
      const std::string failure = llvm::toString(address.takeError()) + '\n' + orc.take_reports();
      orc.remove(library);
      if (failure.find(CodeMemory::no_memory) != std::string::npos) {
        base::fail("jit: no memory for kernel {}: address space or mappings are used up", name);
      }
      base::internal_error("jit: kernel {} cannot be loaded: {}", name, failure);
    }
    // What is freed last is the session: code that is still held keeps it.
    code = {address->getAddress().toPtr<const void*>(), [state = state_, &library](const void*) {
              State::free_in_llvm([&] { state->orc->remove(library); });
            }};
  });
  return code;
}

}  // namespace treadle::jit
