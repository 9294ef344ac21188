// The one engine and the one pool of working memory.
#include "backend/cpu/process.h"

namespace treadle::backend::cpu {

Process& process() {
  static auto* process = new Process;
  return *process;
}

}  // namespace treadle::backend::cpu
