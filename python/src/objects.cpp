// Reads torch's tensors through the table of functions that DLPack 1.2 describes, and NumPy's arrays as
// buffers: pointers to shape and strides, no object of Python's. A type of elements that is met for the
// first time, and whatever cannot be read, goes to a function of the front end, which has the errors.
//
// In: a tensor or an array. Out: a view of its memory.
#include "objects.h"

#include <dlpack/dlpack.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
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

struct KnownTensorType {
  DLDataType theirs;
  DType ours;
};

struct KnownFormat {
  char theirs;
  Py_ssize_t size;
  DType ours;
};

// Under Python's lock. The objects are kept for ever: calls may still be running when Python ends.
struct Readers {
  const ExchangeTable* table = nullptr;
  PyObject* tensors_slowly = nullptr;
  PyObject* arrays_slowly = nullptr;
  std::vector<KnownTensorType> types;  // those that were met
  std::vector<KnownFormat> formats;
};

Readers& readers() {
  static auto* one = new Readers;
  return *one;
}

PyObject* kept(nb::object object) { return object.release().ptr(); }

View view_slowly(PyObject* slowly, nb::handle object) {
  if (slowly == nullptr) throw nb::type_error("expected an array");
  return view_of_array(nb::handle(slowly)(object));
}

bool is_aligned(const void* data, DType type) {
  return reinterpret_cast<std::uintptr_t>(data) % size_of(type) == 0;
}

std::optional<DType> known_type(const DLDataType& theirs) {
  for (const KnownTensorType& type : readers().types)
    if (type.theirs.code == theirs.code && type.theirs.bits == theirs.bits) return type.ours;
  return std::nullopt;
}

std::optional<View> tensor_at_once(const DLTensor& read, DType type) {
  if (read.device.device_type != kDLCPU || read.data == nullptr || read.strides == nullptr)
    return std::nullopt;
  auto* data = static_cast<std::byte*>(read.data) + read.byte_offset;
  if (!is_aligned(data, type)) return std::nullopt;
  return View(data, type, Dims(read.shape, read.shape + read.ndim),
              Dims(read.strides, read.strides + read.ndim));
}

View view_of_tensor(nb::handle tensor) {
  Readers& all = readers();
  DLTensor read{};
  if (all.table == nullptr || all.table->read(tensor.ptr(), &read) != 0) {
    PyErr_Clear();
    return view_slowly(all.tensors_slowly, tensor);
  }
  const std::optional<DType> type = known_type(read.dtype);
  if (type) {
    if (std::optional<View> view = tensor_at_once(read, *type)) return *view;
  }
  View view = view_slowly(all.tensors_slowly, tensor);
  if (!type) all.types.push_back({read.dtype, view.dtype()});
  return view;
}

class Buffer {
 public:
  explicit Buffer(nb::handle array)
      : is_read_(PyObject_GetBuffer(array.ptr(), &read_, PyBUF_STRIDES | PyBUF_FORMAT) == 0) {
    if (!is_read_) PyErr_Clear();
  }
  ~Buffer() {
    if (is_read_) PyBuffer_Release(&read_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // A letter alone is a type in this machine's order of bytes; 0 for all others.
  [[nodiscard]] char letter() const {
    return is_read_ && read_.format != nullptr && read_.format[1] == 0 ? read_.format[0] : '\0';
  }
  [[nodiscard]] const Py_buffer& read() const { return read_; }

 private:
  Py_buffer read_{};
  bool is_read_;
};

std::optional<DType> known_format(char letter, Py_ssize_t size) {
  for (const KnownFormat& format : readers().formats)
    if (format.theirs == letter && format.size == size) return format.ours;
  return std::nullopt;
}

std::optional<View> array_at_once(const Py_buffer& read, DType type) {
  if (read.buf == nullptr || !is_aligned(read.buf, type)) return std::nullopt;
  Dims strides(read.strides, read.strides + read.ndim);
  for (std::int64_t& stride : strides) {
    if (stride % read.itemsize != 0) return std::nullopt;
    stride /= read.itemsize;
  }
  return View(read.buf, type, Dims(read.shape, read.shape + read.ndim), strides);
}

View view_of_buffer(nb::handle array) {
  Readers& all = readers();
  const Buffer buffer(array);
  const char letter = buffer.letter();
  if (letter == '\0') return view_slowly(all.arrays_slowly, array);
  const std::optional<DType> type = known_format(letter, buffer.read().itemsize);
  if (type) {
    if (std::optional<View> view = array_at_once(buffer.read(), *type)) return *view;
  }
  View view = view_slowly(all.arrays_slowly, array);
  if (!type) all.formats.push_back({letter, buffer.read().itemsize, view.dtype()});
  return view;
}

}  // namespace

void read_tensors(const nb::object& exchange, const nb::object& slowly) {
  Readers& all = readers();
  all.tensors_slowly = kept(slowly);
  all.table = nullptr;
  if (exchange.is_none()) return;
  const auto* table = static_cast<const ExchangeTable*>(
      PyCapsule_GetPointer(exchange.ptr(), "dlpack_exchange_api"));
  if (table == nullptr) PyErr_Clear();
  if (table != nullptr && table->major == 1 && table->read != nullptr) all.table = table;
}

void read_arrays(const nb::object& slowly) { readers().arrays_slowly = kept(slowly); }

View view_of_object(nb::handle object) {
  return PyObject_CheckBuffer(object.ptr()) != 0 ? view_of_buffer(object) : view_of_tensor(object);
}

}  // namespace treadle::python
