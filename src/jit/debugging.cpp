// LLVM would look its own entry points up by name among the process's symbols. They are passed as
// addresses instead, where it lets us: a program that opened Treadle privately, as Python does,
// does not show them.
#include "jit/debugging.h"

#include <llvm/Config/llvm-config.h>
#include <llvm/ExecutionEngine/Orc/Debugging/PerfSupportPlugin.h>
#include <llvm/ExecutionEngine/Orc/TargetProcess/JITLoaderGDB.h>
#include <llvm/ExecutionEngine/Orc/TargetProcess/JITLoaderPerf.h>
#if __has_include(<llvm/ExecutionEngine/Orc/Debugging/ELFDebugObjectPlugin.h>)
#include <llvm/ExecutionEngine/Orc/Debugging/ELFDebugObjectPlugin.h>
#define TREADLE_ELF_DEBUG_OBJECTS 1  // from LLVM 22 on
#else
#include <llvm/ExecutionEngine/Orc/DebugObjectManagerPlugin.h>
#include <llvm/ExecutionEngine/Orc/EPCDebugObjectRegistrar.h>
#endif

#include <cstdint>
#include <memory>
#include <type_traits>

#include "base/error.h"
#include "jit/perf_header.h"

namespace treadle::jit {
namespace {

using llvm::orc::ExecutorAddr;

// The head of the file is written along with the first kernel.
auto tell_perf_kernel(const char* data, std::uint64_t bytes) {
  auto result = llvm_orc_registerJITLoaderPerfImpl(data, bytes);
#if LLVM_VERSION_MAJOR < 22
  clear_perf_flags();
#endif
  return result;
}

#ifdef TREADLE_ELF_DEBUG_OBJECTS
// A template, because the constructor lost an argument between two releases.
template <class Plugin>
std::unique_ptr<Plugin> make_plugin(llvm::orc::ExecutionSession& session) {
  llvm::Error error = llvm::Error::success();
  std::unique_ptr<Plugin> plugin;
  if constexpr (std::is_constructible_v<Plugin, llvm::orc::ExecutionSession&, bool, bool,
                                        llvm::Error&>) {
    plugin = std::make_unique<Plugin>(session, false, true, error);
  } else {
    plugin = std::make_unique<Plugin>(session, false, error);
  }
  if (error) base::fail("TREADLE_JIT=gdb: {}", llvm::toString(std::move(error)));
  return plugin;
}
#endif

}  // namespace

void tell_perf(llvm::orc::ExecutionSession& session, llvm::orc::ObjectLinkingLayer& objects) {
  // Kernels carry neither line numbers nor tables for unwinding.
  objects.addPlugin(std::make_unique<llvm::orc::PerfSupportPlugin>(
      session.getExecutorProcessControl(),
      ExecutorAddr::fromPtr(&llvm_orc_registerJITLoaderPerfStart),
      ExecutorAddr::fromPtr(&llvm_orc_registerJITLoaderPerfEnd),
      ExecutorAddr::fromPtr(&tell_perf_kernel),
      /*EmitDebugInfo=*/false, /*EmitUnwindInfo=*/false));
}

void tell_gdb(llvm::orc::ExecutionSession& session, llvm::orc::ObjectLinkingLayer& objects) {
#ifdef TREADLE_ELF_DEBUG_OBJECTS
  objects.addPlugin(make_plugin<llvm::orc::ELFDebugObjectPlugin>(session));
#else
  objects.addPlugin(std::make_unique<llvm::orc::DebugObjectManagerPlugin>(
      session,
      std::make_unique<llvm::orc::EPCDebugObjectRegistrar>(
          session, ExecutorAddr::fromPtr(&llvm_orc_registerJITLoaderGDBWrapper)),
      /*RequireDebugSections=*/false, /*AutoRegisterCode=*/true));
#endif
}

}  // namespace treadle::jit
