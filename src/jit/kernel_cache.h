// A KernelCache: code by key, each made once, up to a number of them.
//
//   KernelCache cache(1024);
//   Code f = cache.get(key, [&] { return compile(...); });
//
// The first to ask for a key makes it; whoever asks meanwhile waits for that one. A maker that
// throws is thrown at everyone who waits, and the next to ask tries again. Finding takes a shared
// lock and a look into a hash table.
//
// Beyond the number, those go that were asked for longest ago, unless somebody holds them: then
// there may be more. What goes is freed and can be made again.
//
// A forked child finds all that was ready, and makes again what another thread was making.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "base/hash.h"

namespace treadle::jit {

// The address of a function, which lives as long as somebody holds it.
using Code = std::shared_ptr<const void>;

class KernelCache {
 public:
  using Make = std::function<Code()>;

  explicit KernelCache(std::size_t capacity) : capacity_(capacity) {}

  // What is there or being made by another thread, waited for; nullptr when neither.
  Code find(const base::Key& key);
  Code get(const base::Key& key, const Make& make);
  [[nodiscard]] std::size_t size() const;

 private:
  using Kernel = std::shared_future<Code>;

  struct Entry {
    Kernel kernel;
    std::uint64_t forks = 0;                // of the process that makes it
    std::atomic<std::uint64_t> last_asked;  // in the order of asking
  };

  [[nodiscard]] static bool is_ready(const Entry& entry);
  [[nodiscard]] static bool is_orphaned(const Entry& entry);
  [[nodiscard]] std::vector<Kernel> take_superfluous();

  const std::size_t capacity_;
  mutable std::shared_mutex mutex_;
  std::unordered_map<base::Key, Entry> kernels_;
  std::atomic<std::uint64_t> asked_ = 0;
};

}  // namespace treadle::jit
