// A small tensor that owns its memory: contiguous, zero-filled, 64-byte aligned.
//
//   Tensor q(DType::f32, {1, 8, 1024, 64});
//   for (float& x : q.data<float>()) x = 1;
//   attention({q, k, v}, options);            // converts to View and ConstView where one is wanted
//   Tensor r = q.clone();                     // copies are asked for; moves are free
//
// For tests, tools and short programs. A program with tensors of its own passes views of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "treadle/api.h"
#include "treadle/dtype.h"
#include "treadle/view.h"

namespace treadle {

// A tensor that owns its memory.
class TREADLE_API Tensor {
 public:
  // No elements, rank 1, length 0. A tensor that was moved from is one of these.
  Tensor() = default;
  Tensor(DType dtype, Dims shape);

  // Moves are free; copies are asked for.
  Tensor(Tensor&& other) noexcept = default;
  Tensor& operator=(Tensor&& other) noexcept = default;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() = default;

  // A copy.
  [[nodiscard]] Tensor clone() const;

  // Views stay valid when the tensor is moved.
  [[nodiscard]] View view() & { return held(); }
  [[nodiscard]] ConstView view() const& { return held(); }
  operator View() & { return held(); }
  operator ConstView() const { return held(); }

  // What it is made of: type, lengths, axes, elements.
  [[nodiscard]] DType dtype() const { return held().dtype(); }
  [[nodiscard]] const Dims& shape() const { return held().shape(); }
  [[nodiscard]] int rank() const { return held().rank(); }
  [[nodiscard]] std::int64_t size(int axis) const { return held().size(axis); }
  [[nodiscard]] std::int64_t count() const { return held().count(); }

  // All elements in row-major order; T is checked.
  template <class T>
  [[nodiscard]] std::span<T> data() & {
    return {elements<T>(), static_cast<std::size_t>(count())};
  }
  template <class T>
  [[nodiscard]] std::span<const T> data() const& {
    return {elements<T>(), static_cast<std::size_t>(count())};
  }

  // One element; index and T are checked.
  template <class T>
  [[nodiscard]] T& at(const Dims& index) & {
    return held().template at<T>(index);
  }
  template <class T>
  [[nodiscard]] const T& at(const Dims& index) const& {
    return held().template at<T>(index);
  }

  // Inside a score mod or a mask: the Value at traced indices. Needs treadle/trace.h.
  template <class... Indices>
  auto operator()(const Indices&... index) const {
    return ConstView(*this)(index...);
  }

 private:
  // Of one that was moved from nothing is left, not even the shape of no elements: making it could
  // fail, and a move must not.
  [[nodiscard]] const View& held() const {
    static const View& none = *new View;  // never taken down
    return memory_ ? view_ : none;
  }
  template <class T>
  [[nodiscard]] T* elements() const {
    if (dtype_of<T> != dtype()) detail::fail_element_type(dtype(), dtype_of<T>);
    return static_cast<T*>(held().data());
  }

  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;
  View view_;
};

}  // namespace treadle
