// Code by hash, with single flight: the first thread to ask makes it, others wait.
#include "jit/kernel_cache.h"

#include <mutex>

namespace treadle::jit {

Code KernelCache::find(const base::Hash& name) {
  Kernel kernel;
  {
    const std::shared_lock lock(mutex_);
    const auto found = kernels_.find(name);
    if (found == kernels_.end()) return nullptr;
    kernel = found->second;
  }
  return kernel.get();  // without the lock: it may have to wait
}

Code KernelCache::get(const base::Hash& name, const Make& make) {
  std::promise<Code> promise;
  Kernel kernel;
  bool first = false;
  {
    const std::unique_lock lock(mutex_);
    const auto [entry, inserted] = kernels_.try_emplace(name);
    if (inserted) entry->second = promise.get_future().share();
    kernel = entry->second;
    first = inserted;
  }
  if (!first) return kernel.get();
  try {
    promise.set_value(make());
  } catch (...) {
    {
      const std::unique_lock lock(mutex_);
      kernels_.erase(name);
    }
    promise.set_exception(std::current_exception());
  }
  return kernel.get();
}

}  // namespace treadle::jit
