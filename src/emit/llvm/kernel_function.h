// A kernel under construction: a module with one function, `kernel`, that takes the address of an
// Args and returns nothing.
//
//   KernelFunction<plan::CopyArgs> kernel("copy", spec.target, DType::f32);
//   Builder& build = kernel.build();
//   Value* count = kernel.args()[&plan::CopyArgs::count];     // loads the member
//   ...
//   return std::move(kernel).finish();
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "emit/llvm/builder.h"
#include "emit/llvm/module.h"

namespace treadle::emit::llvm {

// Members of an Args in memory, as values. Members are pointers, 64-bit integers or doubles.
template <class Args>
class Arguments {
 public:
  Arguments(Builder& build, Value* address) : build_(&build), address_(address) {}

  [[nodiscard]] Value* address() const { return address_; }

  // Every use is a load of its own: kernels may write where the compiler must expect arguments.
  template <class T>
  [[nodiscard]] Value* operator[](T Args::* member) const {
    static_assert(std::is_pointer_v<T> || std::is_same_v<T, std::int64_t> ||
                  std::is_same_v<T, double>);
    Value* at = build_->element(build_->getInt8Ty(), address_, build_->index(offset_of(member)));
    if constexpr (std::is_pointer_v<T>) {
      return build_->CreateLoad(build_->getPtrTy(), at);
    } else {
      const bool real = std::is_same_v<T, double>;
      return build_->CreateLoad(real ? build_->getDoubleTy() : build_->getInt64Ty(), at);
    }
  }

 private:
  template <class T>
  static std::int64_t offset_of(T Args::* member) {
    const Args args{};
    return reinterpret_cast<const std::byte*>(&(args.*member)) -
           reinterpret_cast<const std::byte*>(&args);
  }

  Builder* build_;
  Value* address_;
};

// The function `kernel` of a new module, with one argument: the address of its Args.
struct EmptyKernel {
  Module module;
  ::llvm::Function* function = nullptr;

  EmptyKernel(const std::string& name, const plan::Target& target);
};

template <class Args>
class KernelFunction {
 public:
  // `name` is the module's; dumps show it.
  KernelFunction(const std::string& name, const plan::Target& target, DType compute)
      : kernel_(name, target),
        build_(kernel_.function, target, compute),
        args_(build_, kernel_.function->getArg(0)) {}
  KernelFunction(const KernelFunction&) = delete;
  KernelFunction& operator=(const KernelFunction&) = delete;

  [[nodiscard]] Builder& build() { return build_; }
  [[nodiscard]] const Arguments<Args>& args() const { return args_; }

  // The module, whose function ends here.
  [[nodiscard]] Module finish() && {
    build_.CreateRetVoid();
    return std::move(kernel_.module);
  }

 private:
  EmptyKernel kernel_;
  Builder build_;
  Arguments<Args> args_;
};

}  // namespace treadle::emit::llvm
