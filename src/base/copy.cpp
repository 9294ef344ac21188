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

// All lines of the axes from `axis` on. An index would need memory, which results that are copied
// when nothing may fail any more must not.
void copy_axes(CopyLine line, const View& to, std::int64_t to_offset, const ConstView& from,
               std::int64_t from_offset, std::size_t axis) {
  if (axis + 1 >= to.shape().size()) return line(to, to_offset, from, from_offset);
  for (std::int64_t i = 0; i < to.shape()[axis]; ++i) {
    copy_axes(line, to, to_offset + i * to.strides()[axis], from,
              from_offset + i * from.strides()[axis], axis + 1);
  }
}

}  // namespace

void copy(const View& to, const ConstView& from) {
  if (to.shape() != from.shape()) {
    fail("copy: from shape {} to shape {}; they must be equal", to_string(from.shape()),
         to_string(to.shape()));
  }
  if (to.count() == 0) return;
  copy_axes(copy_line_for(to.dtype(), from.dtype()), to, 0, from, 0, 0);
}

Tensor convert(const ConstView& from, DType dtype) {
  Tensor result(dtype, from.shape());
  copy(result, from);
  return result;
}

}  // namespace treadle::base
