// A KernelCache: code by hash, each made once.
//
//   Code f = cache.get(name, [&] { return compile(...); });
//
// The first to ask for a name makes it; whoever asks meanwhile waits for that one. A maker that
// throws is thrown at everyone who waits, and the next to ask tries again. Finding takes a shared
// lock and a look into a hash table.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <shared_mutex>
#include <unordered_map>

#include "base/hash.h"

namespace treadle::jit {

// The address of a function, which lives as long as somebody holds it.
using Code = std::shared_ptr<const void>;

class KernelCache {
 public:
  using Make = std::function<Code()>;

  // What is there or being made by another thread, waited for; nullptr when neither.
  Code find(const base::Hash& name);
  Code get(const base::Hash& name, const Make& make);

 private:
  using Kernel = std::shared_future<Code>;

  std::shared_mutex mutex_;
  std::unordered_map<base::Hash, Kernel> kernels_;
};

}  // namespace treadle::jit
