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

class TREADLE_API Tensor {
 public:
  // No elements, rank 1, length 0. A tensor that was moved from is one of these.
  Tensor() = default;
  Tensor(DType dtype, Dims shape);

  Tensor(Tensor&& other) noexcept
      : memory_(std::move(other.memory_)), view_(std::exchange(other.view_, View())) {}
  Tensor& operator=(Tensor&& other) noexcept {
    memory_ = std::move(other.memory_);
    view_ = std::exchange(other.view_, View());
    return *this;
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() = default;

  [[nodiscard]] Tensor clone() const;

  // Views stay valid when the tensor is moved.
  [[nodiscard]] View view() & { return view_; }
  [[nodiscard]] ConstView view() const& { return view_; }
  operator View() & { return view_; }
  operator ConstView() const { return view_; }

  [[nodiscard]] DType dtype() const { return view_.dtype(); }
  [[nodiscard]] const Dims& shape() const { return view_.shape(); }
  [[nodiscard]] int rank() const { return view_.rank(); }
  [[nodiscard]] std::int64_t size(int axis) const { return view_.size(axis); }
  [[nodiscard]] std::int64_t count() const { return view_.count(); }

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
    return view_.at<T>(index);
  }
  template <class T>
  [[nodiscard]] const T& at(const Dims& index) const& {
    return view_.at<T>(index);
  }

  // Inside a score mod or a mask: the Value at traced indices. Needs treadle/trace.h.
  template <class... Indices>
  auto operator()(const Indices&... index) const {
    return ConstView(*this)(index...);
  }

 private:
  template <class T>
  [[nodiscard]] T* elements() const {
    if (dtype_of<T> != dtype()) detail::fail_element_type(dtype(), dtype_of<T>);
    return static_cast<T*>(view_.data());
  }

  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;
  View view_;
};

}  // namespace treadle
