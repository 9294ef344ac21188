// A Kernel: compiled code that takes one kind of arguments, held. Code that is held is never freed.
//
//   Kernel<CopyArgs> copy = engine.get(CopySpec{...});
//   copy(args);
#pragma once

#include <memory>
#include <utility>

namespace treadle::plan {

template <class Args>
class Kernel {
 public:
  Kernel() = default;
  // `code` is the address of the function, and keeps it alive.
  explicit Kernel(std::shared_ptr<const void> code) : code_(std::move(code)) {}

  explicit operator bool() const { return code_ != nullptr; }
  void operator()(const Args& args) const {
    reinterpret_cast<void (*)(const Args*)>(const_cast<void*>(code_.get()))(&args);
  }

 private:
  std::shared_ptr<const void> code_;
};

}  // namespace treadle::plan
