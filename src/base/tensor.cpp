// Allocates the memory of tensors.
//
// In: a type and a shape. Out: zeroed memory of that size, aligned and owned.
#include "treadle/tensor.h"

#include <cstring>
#include <limits>
#include <new>

#include "base/error.h"

namespace treadle {
namespace {

constexpr std::align_val_t alignment{64};  // a cache line, and the widest vector register

std::size_t bytes_of(DType dtype, const Dims& shape) {
  const std::int64_t count = count_of(shape);
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  if (count > std::numeric_limits<std::int64_t>::max() / size) {
    base::fail("tensor: {} elements of shape {} take more than 2^63 bytes", name_of(dtype),
               to_string(shape));
  }
  return static_cast<std::size_t>(count * size);
}

}  // namespace

void Tensor::Free::operator()(void* memory) const { ::operator delete(memory, alignment); }

Tensor::Tensor(DType dtype, Dims shape) {
  const std::size_t bytes = bytes_of(dtype, shape);
  memory_.reset(::operator new(bytes, alignment));
  std::memset(memory_.get(), 0, bytes);
  view_ = View(memory_.get(), dtype, shape);
}

Tensor Tensor::clone() const {
  Tensor result(dtype(), shape());
  // Zero bytes may come from no memory at all, which memcpy must not be shown.
  if (count() > 0) std::memcpy(result.memory_.get(), memory_.get(), bytes_of(dtype(), shape()));
  return result;
}

}  // namespace treadle
