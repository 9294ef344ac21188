// The one engine and the one pool of working memory.
#include "backend/cpu/process.h"

#include <atomic>

#include "base/no_fork.h"

namespace treadle::backend::cpu {
namespace {

Process& make_or_find() {
  static auto* process = new Process;
  return *process;
}

}  // namespace

Process& process() {
  static std::atomic<Process*> known = nullptr;
  if (Process* process = known.load(std::memory_order_acquire)) return *process;
  // A child that is forked while it is made would wait for ever for that to end.
  const base::NoFork whole;
  Process& process = make_or_find();
  known.store(&process, std::memory_order_release);
  return process;
}

}  // namespace treadle::backend::cpu
