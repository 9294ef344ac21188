// A LazyKernel: one that is compiled when it is first needed, whoever needs it first.
//
//   LazyKernel<plan::CopyArgs> copy([&engine, spec] { return engine.get(spec); });
//   copy.prepare();                       // compiles, unless that has been done
//   copy(args);                           // compiles at the latest here
//
// Threads may call it at the same time, and may make it at the same time: that they do not compile
// it twice is up to the engine. There is no lock that a fork could leave locked in a child.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "plan/kernel.h"

namespace treadle::run {

template <class Args>
class LazyKernel {
 public:
  using Make = std::function<plan::Kernel<Args>()>;

  LazyKernel() = default;
  LazyKernel(const LazyKernel&) = delete;
  LazyKernel& operator=(const LazyKernel&) = delete;
  ~LazyKernel() { delete kernel_.load(); }

  // Before anybody calls it.
  void set(Make make) { make_ = std::move(make); }

  [[nodiscard]] bool ready() const { return kernel_.load(std::memory_order_acquire) != nullptr; }
  void prepare() const { (void)made(); }
  void operator()(const Args& args) const { made()(args); }

 private:
  const plan::Kernel<Args>& made() const {
    if (const auto* kernel = kernel_.load(std::memory_order_acquire)) return *kernel;
    auto kernel = std::make_unique<const plan::Kernel<Args>>(make_());
    const plan::Kernel<Args>* first = nullptr;
    if (kernel_.compare_exchange_strong(first, kernel.get())) return *kernel.release();
    return *first;
  }

  Make make_;
  mutable std::atomic<const plan::Kernel<Args>*> kernel_{nullptr};
};

// What has to be compiled before a call runs.
class Missing {
 public:
  template <class Args>
  void add(const LazyKernel<Args>& kernel) {
    if (!kernel.ready()) prepare_.emplace_back([&kernel] { kernel.prepare(); });
  }
  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(prepare_.size()); }
  void prepare(std::int64_t i) const { prepare_[static_cast<std::size_t>(i)](); }

 private:
  std::vector<std::function<void()>> prepare_;
};

}  // namespace treadle::run
