// libFuzzer on tensors of other libraries: whatever a DLTensor says, it is taken or refused with a
// treadle::Error, and its deleter is called exactly once.
#include <dlpack/dlpack.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "treadle/dlpack.h"
#include "treadle/error.h"

using namespace treadle;

namespace {

int deleted = 0;

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  // Zeros after the last byte.
  template <class T>
  T take() {
    T value{};
    const std::size_t count = std::min(size_, sizeof(T));
    if (count > 0) std::memcpy(&value, data_, count);
    data_ += count;
    size_ -= count;
    return value;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  alignas(64) static std::uint8_t memory[4096];
  DLManagedTensor managed{};
  DLTensor& tensor = managed.dl_tensor;
  const auto flags = bytes.take<std::uint8_t>();
  const int axes = bytes.take<std::int8_t>() % 9;
  std::vector<std::int64_t> shape, strides;
  for (int i = 0; i < axes; ++i) {
    shape.push_back(bytes.take<std::int64_t>());
    strides.push_back(bytes.take<std::int64_t>());
  }
  tensor.data = (flags & 1) != 0 ? nullptr : memory;
  tensor.byte_offset = bytes.take<std::uint16_t>() % 2048;
  tensor.ndim = axes;
  tensor.shape = (flags & 2) != 0 ? nullptr : shape.data();
  tensor.strides = (flags & 4) != 0 ? nullptr : strides.data();
  tensor.dtype = {bytes.take<std::uint8_t>(), bytes.take<std::uint8_t>(),
                  bytes.take<std::uint16_t>()};
  const std::int32_t device = (flags & 8) != 0 ? bytes.take<std::int32_t>() : kDLCPU;
  std::memcpy(&tensor.device.device_type, &device, sizeof(device));
  managed.deleter = [](DLManagedTensor*) { ++deleted; };
  deleted = 0;
  bool taken = false;
  try {
    const DlpackTensor ours = from_dlpack(&managed);
    taken = true;
    if (ours.view().rank() != axes) std::abort();
  } catch (const Error&) {
  }
  if (deleted != (taken ? 1 : 0)) std::abort();
  return 0;
}
