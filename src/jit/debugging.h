// Tools that want to know where kernels are.
#pragma once

#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>

namespace treadle::jit {

// A file for `perf inject -j`: $JITDUMPDIR (else the home folder)/.debug/jit/.../jit-<pid>.dump.
void tell_perf(llvm::orc::ExecutionSession& session, llvm::orc::ObjectLinkingLayer& objects);

// A list in memory that gdb and lldb look at.
void tell_gdb(llvm::orc::ExecutionSession& session, llvm::orc::ObjectLinkingLayer& objects);

}  // namespace treadle::jit
