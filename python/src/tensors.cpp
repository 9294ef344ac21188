// Reads torch's tensors through the table of functions that DLPack 1.2 describes: pointers to shape
// and strides, no object of Python's.
//
// In: a tensor. Out: a view of its memory, or the error of the front end, which knows the words.
#include "tensors.h"

#include <dlpack/dlpack.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "array.h"

namespace nb = nanobind;

namespace treadle::python {
namespace {

// DLPackExchangeAPI, up to what is used here; the installed header may be older.
struct ExchangeTable {
  std::uint32_t major, minor;
  const void* previous;
  void (*not_used[3])();
  int (*read)(void* tensor, DLTensor* out);
};

struct KnownType {
  DLDataType theirs;
  DType ours;
};

struct Reader {
  const ExchangeTable* table = nullptr;
  PyObject* slowly = nullptr;
  std::vector<KnownType> types;  // those that `slowly` has met
};

// Under Python's lock. Never taken down: threads may still be running when statics are.
Reader& reader() {
  static auto* one = new Reader;
  return *one;
}

bool same_type(const DLDataType& a, const DLDataType& b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

View view_slowly(nb::handle tensor, const DLDataType* theirs) {
  if (reader().slowly == nullptr) throw nb::type_error("expected an array");
  const View view = view_of_array(nb::handle(reader().slowly)(tensor));
  if (theirs != nullptr) reader().types.push_back({*theirs, view.dtype()});
  return view;
}

}  // namespace

void read_tensors(const nb::object& exchange, const nb::object& slowly) {
  Reader& one = reader();
  nb::object keep = slowly;
  one.slowly = keep.release().ptr();
  if (exchange.is_none()) return;
  const auto* table = static_cast<const ExchangeTable*>(
      PyCapsule_GetPointer(exchange.ptr(), "dlpack_exchange_api"));
  if (table == nullptr) PyErr_Clear();
  if (table != nullptr && table->major == 1 && table->read != nullptr) one.table = table;
}

View view_of_tensor(nb::handle tensor) {
  const Reader& one = reader();
  if (one.table == nullptr) return view_slowly(tensor, nullptr);
  DLTensor read{};
  if (one.table->read(tensor.ptr(), &read) != 0) {
    PyErr_Clear();
    return view_slowly(tensor, nullptr);
  }
  if (read.device.device_type != kDLCPU || read.data == nullptr || read.strides == nullptr)
    return view_slowly(tensor, nullptr);
  for (const KnownType& type : one.types) {
    if (!same_type(type.theirs, read.dtype)) continue;
    auto* data = static_cast<std::byte*>(read.data) + read.byte_offset;
    if (reinterpret_cast<std::uintptr_t>(data) % size_of(type.ours) != 0)
      return view_slowly(tensor, nullptr);
    return View(data, type.ours, Dims(read.shape, read.shape + read.ndim),
                Dims(read.strides, read.strides + read.ndim));
  }
  return view_slowly(tensor, &read.dtype);
}

}  // namespace treadle::python
