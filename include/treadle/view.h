// Views: a pointer, an element type, a shape and strides over memory that somebody else owns.
//
//   std::vector<float> data(2 * 3);
//   View m(data.data(), {2, 3});            // contiguous: strides {3, 1}
//   View t(data.data(), {3, 2}, {1, 3});    // its transpose
//   m.at<float>({1, 2}) = 7;                // and t.at<float>({2, 1}) == 7
//
// Strides count elements and may be zero (the axis repeats) or negative (it runs backwards; the
// pointer is at index 0). The pointer must be aligned to the size of an element. A View may be
// written through, a ConstView may not; a View converts to a ConstView.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "treadle/api.h"
#include "treadle/dims.h"
#include "treadle/dtype.h"
#include "treadle/error.h"

namespace treadle {

class Value;  // treadle/trace.h

// Row-major strides of a shape. Throws when a length is negative or the size does not fit 63 bits.
TREADLE_API Dims contiguous_strides(const Dims& shape);

// The product of the lengths.
TREADLE_API std::int64_t count_of(const Dims& shape);

// "[2, 3]", as it stands in error messages.
TREADLE_API std::string to_string(const Dims& dims);

namespace detail {

TREADLE_API void check_view(const void* data, DType dtype, const Dims& shape, const Dims& strides);
[[noreturn]] TREADLE_API void fail_element_type(DType have, DType asked);
TREADLE_API std::int64_t checked_offset(const Dims& shape, const Dims& strides, const Dims& index);

}  // namespace detail

// Memory that somebody else owns, as a tensor. View and ConstView are the two kinds.
template <class Void>
class BasicView {
 public:
  // Whether it can only be read.
  static constexpr bool is_const = std::is_const_v<Void>;
  template <class T>
  // How an element is referred to.
  using Element = std::conditional_t<is_const, const T, T>;

  // No data, rank 1, length 0.
  BasicView() = default;

  // Memory of this type, shape and strides; contiguous if none are given.
  BasicView(Void* data, DType dtype, Dims shape, Dims strides)
      : data_(data), dtype_(dtype), shape_(std::move(shape)), strides_(std::move(strides)) {
    detail::check_view(data_, dtype_, shape_, strides_);
  }

  // Contiguous.
  BasicView(Void* data, DType dtype, const Dims& shape)
      : BasicView(data, dtype, shape, contiguous_strides(shape)) {}

  // Of elements of C++; contiguous.
  template <class T>
    requires(!std::is_void_v<T> && std::is_convertible_v<T*, Void*>)
  BasicView(T* data, const Dims& shape)
      : BasicView(data, dtype_of<std::remove_const_t<T>>, shape) {}

  // Of elements of C++, with strides.
  template <class T>
    requires(!std::is_void_v<T> && std::is_convertible_v<T*, Void*>)
  BasicView(T* data, Dims shape, Dims strides)
      : BasicView(data, dtype_of<std::remove_const_t<T>>, std::move(shape), std::move(strides)) {}

  // A view that may be written through is also one that may be read through.
  template <class Other>
    requires(is_const && !std::is_const_v<Other>)
  BasicView(const BasicView<Other>& other)
      : data_(other.data()),
        dtype_(other.dtype()),
        shape_(other.shape()),
        strides_(other.strides()) {}

  // Where it lies, and what it is made of.
  [[nodiscard]] Void* data() const { return data_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const Dims& shape() const { return shape_; }
  [[nodiscard]] const Dims& strides() const { return strides_; }
  [[nodiscard]] int rank() const { return static_cast<int>(shape_.size()); }
  [[nodiscard]] std::int64_t size(int axis) const {
    return shape_.at(static_cast<std::size_t>(axis));
  }
  [[nodiscard]] std::int64_t stride(int axis) const {
    return strides_.at(static_cast<std::size_t>(axis));
  }
  [[nodiscard]] std::int64_t count() const { return count_of(shape_); }

  // One element; index and element type are checked.
  template <class T>
  [[nodiscard]] Element<T>& at(const Dims& index) const {
    if (dtype_of<T> != dtype_) detail::fail_element_type(dtype_, dtype_of<T>);
    return static_cast<Element<T>*>(data_)[detail::checked_offset(shape_, strides_, index)];
  }

  // Inside a score mod or a mask: the element at traced indices. Defined in treadle/trace.h.
  template <class... Indices>
  Value operator()(const Indices&... index) const;

 private:
  Void* data_ = nullptr;
  DType dtype_ = DType::f32;
  Dims shape_{0};
  Dims strides_{1};
};

// May be written through; ConstView may not.
using View = BasicView<void>;
using ConstView = BasicView<const void>;

}  // namespace treadle
