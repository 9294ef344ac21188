// Values that are made once and kept by key; of many, those that were asked for last.
//
//   Kept<std::string, Layout> layouts(8);
//   Layout layout = layouts.get("causal", [] { return build(); });   // built if it is not there
//
// Values are copied, so they should be handles. Whoever asks for the same key at the same time gets
// the same value, even if both have made one.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <utility>

#include "base/no_fork.h"

namespace treadle::base {

template <class Key, class T>
class Kept {
 public:
  explicit Kept(std::size_t most) : most_(most) {}

  template <class Make>
  T get(const Key& key, const Make& make) {
    {
      const NoFork whole;
      const std::lock_guard lock(mutex_);
      if (const T* known = find(key)) return *known;
    }
    T made = make();  // may take long, and may throw
    const NoFork whole;
    const std::lock_guard lock(mutex_);
    if (const T* known = find(key)) return *known;
    all_.emplace_front(key, std::move(made));
    if (all_.size() > most_) all_.pop_back();
    return all_.front().second;
  }

 private:
  // Few enough to look at each. What is found comes first.
  const T* find(const Key& key) {
    for (auto at = all_.begin(); at != all_.end(); ++at) {
      if (!(at->first == key)) continue;
      all_.splice(all_.begin(), all_, at);
      return &at->second;
    }
    return nullptr;
  }

  std::size_t most_;
  std::mutex mutex_;
  std::list<std::pair<Key, T>> all_;
};

}  // namespace treadle::base
