// Checks addresses, shapes, strides and indices of views.
//
// In: numbers from anywhere. Out: the same, known to fit, or an Error. Behind these checks lengths
// and strides of a view with elements may be multiplied without a further check.
#include "treadle/view.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"

namespace treadle {
namespace {

using base::fail;

// result = a * b + c; false when that does not fit. The built-ins are GCC's and Clang's.
bool multiply_add(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t& result) {
  std::int64_t product = 0;
  return !__builtin_mul_overflow(a, b, &product) && !__builtin_add_overflow(product, c, &result);
}

void check_lengths(const Dims& shape) {
  for (const std::int64_t length : shape) {
    if (length < 0) fail("view: shape {} has the negative length {}", to_string(shape), length);
  }
}

// The bytes from the lowest element to the end of the highest.
void check_extent(DType dtype, const Dims& shape, const Dims& strides) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  std::int64_t extent = size;
  bool fits = true;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    std::int64_t step = 0;
    fits = fits && multiply_add(strides[axis], strides[axis] < 0 ? -size : size, 0, step) &&
           multiply_add(shape[axis] - 1, step, extent, extent);
  }
  if (!fits) {
    fail("view: {} elements of shape {} at strides {} reach further than 2^63 bytes",
         name_of(dtype), to_string(shape), to_string(strides));
  }
}

}  // namespace

std::int64_t count_of(const Dims& shape) {
  check_lengths(shape);
  if (std::ranges::count(shape, 0) > 0) return 0;  // before a product of the others can overflow
  std::int64_t count = 1;
  for (const std::int64_t length : shape) {
    if (!multiply_add(count, length, 0, count)) {
      fail("view: shape {} has more elements than 63 bits can count", to_string(shape));
    }
  }
  return count;
}

Dims contiguous_strides(const Dims& shape) {
  if (count_of(shape) == 0) return Dims(shape.size(), 1);  // no element to step to
  Dims strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= shape[axis];
  }
  return strides;
}

std::string to_string(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

namespace detail {

void check_view(const void* data, DType dtype, const Dims& shape, const Dims& strides) {
  if (shape.size() != strides.size()) {
    fail("view: shape {} has {} axes, strides {} have {}", to_string(shape), shape.size(),
         to_string(strides), strides.size());
  }
  const std::int64_t count = count_of(shape);
  if (count == 0) return;
  if (data == nullptr)
    fail("view: null data for the {} elements of shape {}", count, to_string(shape));
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) != 0) {
    fail("view: data {} is not aligned to {} elements of {} bytes", data, name_of(dtype),
         size_of(dtype));
  }
  check_extent(dtype, shape, strides);
}

void fail_element_type(DType have, DType asked) {
  fail("view: the elements are {}, but {} was requested", name_of(have), name_of(asked));
}

std::int64_t checked_offset(const Dims& shape, const Dims& strides, const Dims& index) {
  if (index.size() != shape.size()) {
    fail("view: index {} has {} axes, shape {} has {}", to_string(index), index.size(),
         to_string(shape), shape.size());
  }
  std::int64_t offset = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (index[axis] < 0 || index[axis] >= shape[axis]) {
      fail("view: index {} is outside of shape {} on axis {}", to_string(index), to_string(shape),
           axis);
    }
    offset += index[axis] * strides[axis];
  }
  return offset;
}

}  // namespace detail
}  // namespace treadle
