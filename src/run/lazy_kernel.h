// A LazyKernel: one that is compiled when it is first needed, whoever needs it first.
//
//   LazyKernel<plan::CopyArgs> copy([&engine, spec] { return engine.get(spec); });
//   copy.prepare();                       // compiles, unless that has been done
//   copy(args);                           // compiles at the latest here
//
// Threads may call it at the same time; one of them compiles.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

#include "plan/kernel.h"

namespace treadle::run {

template <class Args>
class LazyKernel {
 public:
  using Make = std::function<plan::Kernel<Args>()>;

  LazyKernel() = default;
  LazyKernel(const LazyKernel&) = delete;
  LazyKernel& operator=(const LazyKernel&) = delete;

  // Before anybody calls it.
  void set(Make make) { make_ = std::move(make); }

  [[nodiscard]] bool ready() const { return ready_.load(std::memory_order_acquire); }
  void prepare() const {
    if (ready()) return;
    const std::lock_guard lock(mutex_);
    if (ready()) return;
    kernel_ = make_();
    ready_.store(true, std::memory_order_release);
  }
  void operator()(const Args& args) const {
    prepare();
    kernel_(args);
  }

 private:
  Make make_;
  mutable std::mutex mutex_;
  mutable std::atomic<bool> ready_{false};
  mutable plan::Kernel<Args> kernel_;
};

}  // namespace treadle::run
