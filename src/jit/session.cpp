// ORC and JITLink, with less than LLJIT around them: an object is compiled before it comes here, so
// a session needs no target machine, and one read from disk is loaded within a millisecond.
#include "jit/session.h"

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
#include <mutex>
#include <utility>

#include "base/error.h"
#include "jit/debugging.h"

namespace treadle::jit {
namespace {

template <class T>
T value_of(llvm::Expected<T> expected) {
  if (!expected) base::internal_error("jit: {}", llvm::toString(expected.takeError()));
  return std::move(*expected);
}

void check(llvm::Error error) {
  if (error) base::internal_error("jit: {}", llvm::toString(std::move(error)));
}

// Where an object's undefined names are looked for, in this order. The libraries are asked for by
// name because a process that opened Treadle privately, as Python does, shows neither them nor what
// they hold; where one does not exist the process itself has to have its functions.
constexpr std::array<const char*, 3> libraries{nullptr /* the process */, "libm.so.6",
                                               "libmvec.so.1"};

}  // namespace

struct Session::State {
  llvm::orc::ExecutionSession session;
  llvm::orc::ObjectLinkingLayer objects;
  llvm::orc::JITDylib& outside;

  // A failed lookup says only that it failed; why is told here, by default on stderr.
  std::mutex reports_mutex;
  std::string reports;

  // Work is done by the thread that asks for it.
  explicit State(const EngineOptions& options)
      : session(value_of(llvm::orc::SelfExecutorProcessControl::Create(
            nullptr, std::make_unique<llvm::orc::InPlaceTaskDispatcher>()))),
        objects(session, value_of(llvm::jitlink::InProcessMemoryManager::Create())),
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
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { llvm::consumeError(session.endSession()); }

  std::string take_reports() {
    const std::lock_guard lock(reports_mutex);
    return std::exchange(reports, {});
  }
};

Session::Session(const EngineOptions& options) : state_(std::make_shared<State>(options)) {}
Session::~Session() = default;

Code Session::load(const std::string& name, std::string_view object, const std::string& symbol) {
  llvm::orc::JITDylib& library = state_->session.createBareJITDylib(name);
  library.addToLinkOrder(state_->outside);
  check(state_->objects.add(
      library, llvm::MemoryBuffer::getMemBufferCopy({object.data(), object.size()}, name)));
  auto address = state_->session.lookup({&library}, symbol);
  if (!address) {
    const std::string failure = llvm::toString(address.takeError());
    // Its name becomes free, so that another try is not refused for that reason.
    llvm::consumeError(state_->session.removeJITDylib(library));
    base::internal_error("jit: kernel {} cannot be loaded: {}\n{}", name, failure,
                         state_->take_reports());
  }
  // What is freed last is the session: code that is still held keeps it.
  return {address->getAddress().toPtr<const void*>(), [state = state_, &library](const void*) {
            llvm::consumeError(state->session.removeJITDylib(library));
          }};
}

}  // namespace treadle::jit
