// The functions behind the operators of treadle/trace.h.
//
// In: the name of an operation and operands. Out: a Value.
#include <algorithm>

#include "base/error.h"
#include "trace/recorder.h"

namespace treadle {
namespace {

using ir::Op;
using ir::Type;

// A value of the wanted type, or a sentence that says what came instead.
void check_type(const Value& value, Type wanted) {
  const Type seen = trace::type_of(value);
  if (seen != wanted) {
    base::fail("mod: a value of type {} is used as one of type {}; to_{}() converts it",
               ir::name_of(seen), ir::name_of(wanted), ir::name_of(wanted));
  }
}

Value converted_to_float(const Operand& value) { return trace::apply(Op::to_float, {&value, 1}); }

Op known_op(std::string_view name) {
  const auto op = ir::find_op(name);
  if (!op) base::internal_error("trace: no operation is called {}", name);
  return *op;
}

}  // namespace

Float::Float(const Value& value) : Value(converted_to_float(value)) {}
Index::Index(const Value& value) : Value(value) { check_type(value, Type::integer); }
Bool::Bool(const Value& value) : Value(value) { check_type(value, Type::boolean); }

Operand::Operand(const Capture& scalar) : value_(trace::load(scalar, {})) {}

namespace detail {

void fail_integer(std::uint64_t number) {
  base::fail("mod: the number {} does not fit a signed 64-bit integer", number);
}

void fail_no_tensor(const std::string& name) {
  base::fail("capture \"{}\": it received a null pointer instead of a tensor", name);
}

Value apply(std::string_view operation, std::initializer_list<Operand> operands) {
  return trace::apply(known_op(operation), operands);
}

Value apply_bits(std::string_view operation, std::initializer_list<Operand> operands) {
  const bool all_bools = std::ranges::all_of(
      operands, [](const Operand& x) { return trace::type_of(x) == Type::boolean; });
  Op op = known_op(operation);
  if (all_bools && op == Op::bit_and) op = Op::logical_and;
  if (all_bools && op == Op::bit_or) op = Op::logical_or;
  if (all_bools && op == Op::bit_xor) op = Op::logical_xor;
  if (all_bools && op == Op::bit_not) op = Op::logical_not;
  return trace::apply(op, operands);
}

Value load(const Capture& capture, std::initializer_list<Operand> indices) {
  return trace::load(capture, indices);
}

}  // namespace detail
}  // namespace treadle
