// A repair of LLVM before 22: it leaves the flags in the head of perf's file to chance, and perf
// refuses the file (llvm-project pull request 175204).
#pragma once

namespace treadle::jit {

// The file is the one that this process has mapped, which is how perf finds it as well.
void clear_perf_flags();

}  // namespace treadle::jit
