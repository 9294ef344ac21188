// Exchanges tensors with other libraries through DLPack.
//
// In: a managed tensor. Out: a view and the owner of its memory; and the other way round.
#include "treadle/dlpack.h"

#include <dlpack/dlpack.h>

#include <cstring>

#include "base/element.h"
#include "base/error.h"

namespace treadle {
namespace {

using base::fail;

// kDLBool, kDLFloat8_e4m3fn and kDLFloat8_e5m2 of DLPack 1.1, which 0.6 does not name yet.
constexpr std::uint8_t boolean_code = 6, e4m3_code = 10, e5m2_code = 12;

DLDataType to_dlpack_type(DType type) {
  const auto bits = static_cast<std::uint8_t>(size_of(type) * 8);
  switch (type) {
    case DType::f64:
    case DType::f32:
    case DType::f16: return {.code = kDLFloat, .bits = bits, .lanes = 1};
    case DType::bf16: return {.code = kDLBfloat, .bits = bits, .lanes = 1};
    case DType::i64:
    case DType::i32:
    case DType::i16:
    case DType::i8: return {.code = kDLInt, .bits = bits, .lanes = 1};
    case DType::u8: return {.code = kDLUInt, .bits = bits, .lanes = 1};
    case DType::boolean: return {.code = boolean_code, .bits = bits, .lanes = 1};
    case DType::e4m3: return {.code = e4m3_code, .bits = bits, .lanes = 1};
    case DType::e5m2: return {.code = e5m2_code, .bits = bits, .lanes = 1};
  }
  base::internal_error("to_dlpack: no element type has the number {}", static_cast<int>(type));
}

DType from_dlpack_type(const DLDataType& type) {
  if (type.lanes != 1) fail("elements of {} lanes; only 1 is supported", type.lanes);
  for (const DType ours : base::all_dtypes) {
    const DLDataType theirs = to_dlpack_type(ours);
    if (theirs.code == type.code && theirs.bits == type.bits) return ours;
  }
  fail("no element type for DLPack code {} with {} bits", type.code, type.bits);
}

View view_of(const DLTensor& tensor) {
  // As a number: a newer DLPack may name devices that our enumeration does not have.
  std::int32_t device = 0;
  static_assert(sizeof(device) == sizeof(tensor.device.device_type));
  std::memcpy(&device, &tensor.device.device_type, sizeof(device));
  if (device != kDLCPU) {
    fail("the tensor is on DLPack device {}; only the CPU, {}, is supported", device,
         static_cast<int>(kDLCPU));
  }
  const DType dtype = from_dlpack_type(tensor.dtype);
  if (tensor.ndim < 0) fail("the tensor has {} axes", tensor.ndim);
  if (tensor.ndim > 0 && tensor.shape == nullptr) {
    fail("the tensor has {} axes and no shape", tensor.ndim);
  }
  Dims shape(tensor.shape, tensor.shape + tensor.ndim);
  Dims strides = tensor.strides == nullptr ? contiguous_strides(shape)
                                           : Dims(tensor.strides, tensor.strides + tensor.ndim);
  // Null stays null: a view checks that nothing is read through it.
  void* data =
      tensor.data == nullptr ? nullptr : static_cast<char*>(tensor.data) + tensor.byte_offset;
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) != 0) {
    fail("data {} with byte offset {} is not aligned to elements of {} bytes", tensor.data,
         tensor.byte_offset, size_of(dtype));
  }
  return View(data, dtype, std::move(shape), std::move(strides));
}

// What a deleter gets back: the tensor, the numbers it points to, the owner of its memory.
struct Exported {
  DLManagedTensor managed{};
  Dims shape;
  Dims strides;
  std::shared_ptr<void> owner;
};

}  // namespace

void DlpackTensor::Delete::operator()(DLManagedTensor* tensor) const {
  if (tensor->deleter != nullptr) tensor->deleter(tensor);
}

DlpackTensor from_dlpack(DLManagedTensor* tensor) {
  if (tensor == nullptr) fail("from_dlpack: null instead of a tensor");
  try {
    return {view_of(tensor->dl_tensor), tensor};
  } catch (const Error& error) {
    fail("from_dlpack: {}; the tensor still belongs to the caller", error.what());
  }
}

DLManagedTensor* to_dlpack(const View& view, std::shared_ptr<void> owner) {
  auto exported = std::make_unique<Exported>();
  exported->shape = view.shape();
  exported->strides = view.strides();
  exported->owner = std::move(owner);

  DLManagedTensor& managed = exported->managed;
  managed.dl_tensor = {.data = view.data(),
                       .device = {.device_type = kDLCPU, .device_id = 0},
                       .ndim = view.rank(),
                       .dtype = to_dlpack_type(view.dtype()),
                       .shape = exported->shape.data(),
                       .strides = exported->strides.data(),
                       .byte_offset = 0};
  managed.manager_ctx = exported.get();
  managed.deleter = [](DLManagedTensor* self) { delete static_cast<Exported*>(self->manager_ctx); };
  return &exported.release()->managed;
}

DLManagedTensor* to_dlpack(Tensor&& tensor) {
  const auto owner = std::make_shared<Tensor>(std::move(tensor));
  return to_dlpack(owner->view(), owner);
}

}  // namespace treadle
