// Size, name and kind of every element type.
#include "treadle/dtype.h"

#include "base/element.h"

namespace treadle {

void detail::no_dtype(DType type) {
  base::internal_error("size_of: no element type has the number {}", static_cast<int>(type));
}

std::string_view name_of(DType type) {
  switch (type) {
    case DType::f64: return "f64";
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::i64: return "i64";
    case DType::i32: return "i32";
    case DType::i16: return "i16";
    case DType::i8: return "i8";
    case DType::u8: return "u8";
    case DType::boolean: return "bool";
    case DType::e4m3: return "e4m3";
    case DType::e5m2: return "e5m2";
  }
  base::internal_error("name_of: no element type has the number {}", static_cast<int>(type));
}

bool is_float(DType type) {
  return base::visit_dtype(
      type, [](auto tag) { return base::is_float_element<typename decltype(tag)::type>; });
}

bool is_integer(DType type) { return !is_float(type) && type != DType::boolean; }

}  // namespace treadle
