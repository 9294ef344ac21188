// Work inside LLVM, on a thread of its own.
//
//   std::string object;
//   in_llvm([&] { object = compiler.object(module); });
//
// LLVM is built without exceptions. A bad_alloc thrown through it leaves its locks locked and its
// tables half made, and the destructors on the way fall over them. So nothing is unwound: a thread
// that runs out of memory in here stops where it is, for ever, and the caller gets the bad_alloc.
// From then on LLVM is lost to this process: what is loaded goes on, new work is a treadle::Error
// at once. The same happens when LLVM gives up for another reason, as an InternalError.
//
// No fork and no exit() of another thread falls into the work (base/no_fork.h).
#pragma once

#include <functional>

namespace treadle::jit {

// Throws what the work throws, if that is a std::runtime_error or a std::logic_error. Called by
// work that is inside already, it just calls.
void in_llvm(const std::function<void()>& work);

// Whether nothing inside LLVM may be touched any more, not even to free it.
bool llvm_is_lost();

}  // namespace treadle::jit
