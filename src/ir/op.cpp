// The table ops.def as data. In: an operation or its spelling; out: its row.
#include "ir/op.h"

#include <algorithm>

namespace treadle::ir {
namespace {

constexpr OpInfo table[] = {
#define TREADLE_OP(name, text, infix, arity, rule) {Op::name, text, infix, arity, Rule::rule},
#include "ir/ops.def"
#undef TREADLE_OP
};

}  // namespace

std::span<const OpInfo> op_table() { return table; }

const OpInfo& info(Op op) { return table[static_cast<std::size_t>(op)]; }

std::optional<Op> find_op(std::string_view text) {
  if (text.empty()) return std::nullopt;  // leaves have no name
  const auto* row = std::ranges::find(table, text, &OpInfo::text);
  if (row == std::end(table)) return std::nullopt;
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
