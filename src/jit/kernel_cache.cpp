// Code by key, with single flight: the first thread to ask makes it, others wait.
#include "jit/kernel_cache.h"

#include <chrono>
#include <mutex>
#include <new>

#include "base/no_fork.h"

namespace treadle::jit {

bool KernelCache::is_ready(const Entry& entry) {
  return entry.kernel.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

// The thread that made it was left behind in another process.
bool KernelCache::is_orphaned(const Entry& entry) {
  return entry.forks != base::forks() && !is_ready(entry);
}

std::size_t KernelCache::size() const {
  const base::NoFork whole;
  const std::shared_lock lock(mutex_);
  return kernels_.size();
}

Code KernelCache::find(const base::Key& key) {
  Kernel kernel;
  {
    const base::NoFork whole;
    const std::shared_lock lock(mutex_);
    const auto found = kernels_.find(key);
    if (found == kernels_.end() || is_orphaned(found->second)) return nullptr;
    found->second.last_asked = ++asked_;
    kernel = found->second.kernel;
  }
  return kernel.get();  // without the lock: it may have to wait
}

Code KernelCache::get(const base::Key& key, const Make& make) {
  std::promise<Code> promise;
  Kernel kernel;
  bool first = false;
  {
    const base::NoFork whole;
    const std::unique_lock lock(mutex_);
    Entry& entry = kernels_[key];
    if (!entry.kernel.valid() || is_orphaned(entry)) {
      entry.kernel = promise.get_future().share();
      entry.forks = base::forks();
      first = true;
    }
    entry.last_asked = ++asked_;
    kernel = entry.kernel;
  }
  if (!first) return kernel.get();
  try {
    promise.set_value(make());
  } catch (...) {
    {
      const base::NoFork whole;
      const std::unique_lock lock(mutex_);
      kernels_.erase(key);
    }
    promise.set_exception(std::current_exception());
    return kernel.get();
  }
  const Code code = kernel.get();  // held, so that it is not the one to go
  try {
    const std::vector<Kernel> freed = take_superfluous();  // and freed without the lock
  } catch (const std::bad_alloc&) {                        // they go with the next
  }
  return code;
}

std::vector<KernelCache::Kernel> KernelCache::take_superfluous() {
  std::vector<Kernel> superfluous;
  const base::NoFork whole;
  const std::unique_lock lock(mutex_);
  while (kernels_.size() > capacity_) {
    auto oldest = kernels_.end();
    for (auto at = kernels_.begin(); at != kernels_.end(); ++at) {
      const Entry& entry = at->second;
      // Held by nobody but this cache. That stays so: whoever wants it has to ask here.
      if (!is_ready(entry) || entry.kernel.get().use_count() > 1) continue;
      if (oldest == kernels_.end() || entry.last_asked < oldest->second.last_asked) oldest = at;
    }
    if (oldest == kernels_.end()) break;
    superfluous.push_back(oldest->second.kernel);
    kernels_.erase(oldest);
  }
  return superfluous;
}

}  // namespace treadle::jit
