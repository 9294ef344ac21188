// Copies elements between views, with conversion.
//
// In: two views of one shape. Out: the elements of the second in the first. Read copy() first: it
// walks the lines; copy_line() is the loop, compiled once per pair of element types.
#include "base/copy.h"

#include "base/element.h"
#include "base/error.h"

namespace treadle::base {
namespace {

// The elements along the last axis, from the one at a given offset.
template <class To, class From>
void copy_line(const View& to, std::int64_t to_offset, const ConstView& from,
               std::int64_t from_offset) {
  const bool scalar = to.rank() == 0;
  const std::int64_t length = scalar ? 1 : to.shape().back();
  const std::int64_t to_stride = scalar ? 0 : to.strides().back();
  const std::int64_t from_stride = scalar ? 0 : from.strides().back();
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t target = to_offset + i * to_stride;
    const std::int64_t source = from_offset + i * from_stride;
    if constexpr (std::same_as<To, From> && !std::same_as<To, bool>) {
      static_cast<To*>(to.data())[target] = static_cast<const From*>(from.data())[source];
    } else {
      store_as<To>(to.data(), target, load_as<From>(from.data(), source));
    }
  }
}

using CopyLine = void (*)(const View&, std::int64_t, const ConstView&, std::int64_t);

CopyLine copy_line_for(DType to, DType from) {
  return visit_dtype(to, [from](auto to_tag) {
    return visit_dtype(from, [](auto from_tag) -> CopyLine {
      return copy_line<typename decltype(to_tag)::type, typename decltype(from_tag)::type>;
    });
  });
}

// The next index in row-major order over all axes but the last; false after the last one.
bool advance(Dims& index, const Dims& shape) {
  for (std::size_t axis = index.size(); axis-- > 0;) {
    if (++index[axis] < shape[axis]) return true;
    index[axis] = 0;
  }
  return false;
}

std::int64_t offset_of(const Dims& index, const Dims& strides) {
  std::int64_t offset = 0;
  for (std::size_t axis = 0; axis < index.size(); ++axis) offset += index[axis] * strides[axis];
  return offset;
}

}  // namespace

void copy(const View& to, const ConstView& from) {
  if (to.shape() != from.shape()) {
    fail("copy: from shape {} to shape {}; they must be equal", to_string(from.shape()),
         to_string(to.shape()));
  }
  if (to.count() == 0) return;
  const CopyLine line = copy_line_for(to.dtype(), from.dtype());
  Dims index(to.rank() == 0 ? 0 : to.shape().size() - 1);
  do {
    line(to, offset_of(index, to.strides()), from, offset_of(index, from.strides()));
  } while (advance(index, to.shape()));
}

Tensor convert(const ConstView& from, DType dtype) {
  Tensor result(dtype, from.shape());
  copy(result, from);
  return result;
}

}  // namespace treadle::base
