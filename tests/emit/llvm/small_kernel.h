// Parts of emitters in small kernels of their own, to be compared with plain loops.
//
//   const auto kernel = compile_small<MapArgs>(target, DType::f32, [](auto& kernel) {
//     Builder& build = kernel.build();
//     ...
//   });
//   kernel({.x = x.data(), .out = out.data(), .count = 64});
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "emit/llvm/kernel_function.h"
#include "guarded.h"
#include "jit/engine.h"
#include "mod_runner.h"
#include "plan/kernel.h"

namespace treadle::test {

// Every target that this machine can run, also those that LLVM alone distinguishes.
inline std::vector<plan::Target> every_target() {
  std::vector<plan::Target> targets = targets_here();
  for (const std::string& name : plan::runnable_targets()) {
    const auto known = std::ranges::find(targets, name, &plan::Target::name);
    if (known == targets.end()) targets.push_back(plan::find_target(name));
  }
  return targets;
}

inline jit::Engine& small_engine() {
  static jit::Engine engine{jit::EngineOptions{}};
  return engine;
}

// A key that no other small kernel has.
inline base::Hash next_key() {
  static int number = 0;
  return base::Hasher().add("small_kernel").add(number++).finish();
}

template <class Args>
using EmitBody = std::function<void(emit::llvm::KernelFunction<Args>&)>;

template <class Args>
plan::Kernel<Args> compile_small(const plan::Target& target, DType compute,
                                 const EmitBody<Args>& body) {
  return plan::Kernel<Args>(small_engine().code(next_key(), target, [&] {
    emit::llvm::KernelFunction<Args> kernel("small", target, compute);
    body(kernel);
    return std::move(kernel).finish();
  }));
}

// An array that ends, or begins, at memory that must not be touched.
template <class T>
class GuardedArray {
 public:
  GuardedArray(std::size_t size, Guarded::At at, T value = {})
      : memory_(size * sizeof(T), at), size_(size) {
    std::ranges::fill(span(), value);
  }

  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  [[nodiscard]] std::span<T> span() const { return {data(), size_}; }
  T& operator[](std::int64_t i) const { return data()[i]; }

 private:
  Guarded memory_;
  std::size_t size_;
};

// a * b + c as kernels of the target compute it.
template <class F>
F multiply_add(const plan::Target& target, F a, F b, F c) {
  return target.fma ? std::fma(a, b, c) : a * b + c;
}

// out[i] = f(x[i], y[i]) for vectors of the compute type; count is a multiple of the lanes.
struct MapArgs {
  const void* x = nullptr;
  const void* y = nullptr;
  void* out = nullptr;
  std::int64_t count = 0;
};

using Map = std::function<emit::llvm::Value*(emit::llvm::Builder&, emit::llvm::Value* x,
                                             emit::llvm::Value* y)>;

template <class F>
std::vector<F> map_vectors(const plan::Target& target, const Map& map, std::vector<F> x,
                           std::vector<F> y) {
  constexpr DType compute = std::is_same_v<F, double> ? DType::f64 : DType::f32;
  const auto kernel = compile_small<MapArgs>(target, compute, [&](auto& made) {
    emit::llvm::Builder& build = made.build();
    emit::llvm::Value* count = made.args()[&MapArgs::count];
    build.loop(build.index(0), count, build.lanes(), [&](emit::llvm::Value* i) {
      const auto at = [&](emit::llvm::Value* array) {
        return build.element(build.real(), array, i);
      };
      emit::llvm::Value* first = build.load(build.reals(), at(made.args()[&MapArgs::x]));
      emit::llvm::Value* second = build.load(build.reals(), at(made.args()[&MapArgs::y]));
      build.store(map(build, first, second), at(made.args()[&MapArgs::out]));
    });
  });
  const std::size_t size = x.size();
  const auto lanes = static_cast<std::size_t>(target.lanes(compute));
  const std::size_t padded = (size + lanes - 1) / lanes * lanes;
  x.resize(padded);
  y.resize(padded);
  std::vector<F> out(padded);
  kernel({.x = x.data(),
          .y = y.data(),
          .out = out.data(),
          .count = static_cast<std::int64_t>(padded)});
  out.resize(size);
  return out;
}

}  // namespace treadle::test
