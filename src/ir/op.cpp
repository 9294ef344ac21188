// Finds operations by name; names types and inputs.
#include "ir/op.h"

#include <algorithm>

namespace treadle::ir {

std::optional<Op> find_op(std::string_view text) {
  if (text.empty()) return std::nullopt;  // leaves have no name
  const auto* row = std::ranges::find(op_rows, text, &OpInfo::text);
  if (row == std::end(op_rows)) return std::nullopt;
  return row->op;
}

std::string_view name_of(Type type) {
  switch (type) {
    case Type::boolean: return "bool";
    case Type::integer: return "int";
    case Type::real: return "float";
  }
  return "?";
}

std::string_view name_of(Input input) {
  switch (input) {
    case Input::score: return "score";
    case Input::b: return "b";
    case Input::h: return "h";
    case Input::q: return "q";
    case Input::kv: return "kv";
    case Input::grad: return "grad";
  }
  return "?";
}

Type type_of(Input input) {
  return input == Input::score || input == Input::grad ? Type::real : Type::integer;
}

Type type_of(DType dtype) {
  if (is_float(dtype)) return Type::real;
  return is_integer(dtype) ? Type::integer : Type::boolean;
}

}  // namespace treadle::ir
