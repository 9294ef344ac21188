// Reads and writes single elements whose type is known at run time.
#include "base/element.h"

namespace treadle::base {

double load_double(const void* data, DType type, std::int64_t offset) {
  return visit_dtype(type, [&](auto tag) {
    return static_cast<double>(load_as<typename decltype(tag)::type>(data, offset));
  });
}

std::int64_t load_int(const void* data, DType type, std::int64_t offset) {
  return visit_dtype(type, [&](auto tag) {
    return saturate<std::int64_t>(load_as<typename decltype(tag)::type>(data, offset));
  });
}

void store_double(void* data, DType type, std::int64_t offset, double value) {
  visit_dtype(type, [&](auto tag) { store_as<typename decltype(tag)::type>(data, offset, value); });
}

void store_int(void* data, DType type, std::int64_t offset, std::int64_t value) {
  visit_dtype(type, [&](auto tag) { store_as<typename decltype(tag)::type>(data, offset, value); });
}

}  // namespace treadle::base
