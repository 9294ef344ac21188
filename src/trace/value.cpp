// The functions behind the operators of treadle/trace.h. In: the name of an operation and operands; out: a Value.
#include <algorithm>

#include "base/error.h"
#include "trace/recorder.h"

namespace treadle {
namespace {

using ir::Op;
using ir::Type;

// A value of the wanted type, or a sentence that says what came instead. Elements at constant indices are looked at
// when they meet a traced value.
void check_type(const Value& value, Type wanted) {
  const Type seen = value.recorder() != nullptr ? value.recorder()->make().type(value.node())
                                                : ir::type_of(value.element()->capture.view().dtype());
  if (seen != wanted) {
    base::fail("mod: a value of type {} is used as one of type {}; to_{}() converts it", ir::name_of(seen),
               ir::name_of(wanted), ir::name_of(wanted));
  }
}

Value converted_to_float(const Value& value) {
  if (value.recorder() == nullptr) return value;
  return {value.recorder(), value.recorder()->make().convert(value.node(), Type::real)};
}

Value apply_op(Op op, std::initializer_list<Operand> operands) {
  const auto recorder = trace::recorder_of(operands, ir::info(op).text);
  return {recorder, recorder->make().apply(op, recorder->nodes_of(operands))};
}

Op known_op(std::string_view name) {
  const auto op = ir::find_op(name);
  if (!op) base::internal_error("trace: no operation is called {}", name);
  return *op;
}

}  // namespace

Float::Float(const Value& value) : Value(converted_to_float(value)) {}
Index::Index(const Value& value) : Value(value) { check_type(value, Type::integer); }
Bool::Bool(const Value& value) : Value(value) { check_type(value, Type::boolean); }

Operand::Operand(const Capture& scalar)
    : value_(std::make_shared<trace::Element>(scalar, std::vector<Operand>())) {}

namespace detail {

void fail_integer(std::uint64_t number) {
  base::fail("mod: the number {} does not fit a signed 64-bit integer", number);
}

Value apply(std::string_view operation, std::initializer_list<Operand> operands) {
  return apply_op(known_op(operation), operands);
}

Value apply_bits(std::string_view operation, std::initializer_list<Operand> operands) {
  const auto recorder = trace::recorder_of(operands, operation);
  bool all_bools = true;
  for (const Operand& operand : operands) {
    all_bools = all_bools && recorder->make().type(recorder->node_of(operand)) == Type::boolean;
  }
  Op op = known_op(operation);
  if (all_bools && op == Op::bit_and) op = Op::logical_and;
  if (all_bools && op == Op::bit_or) op = Op::logical_or;
  if (all_bools && op == Op::bit_xor) op = Op::logical_xor;
  if (all_bools && op == Op::bit_not) op = Op::logical_not;
  return apply_op(op, operands);
}

Value load(const Capture& capture, std::initializer_list<Operand> indices) {
  if (const auto recorder = trace::find_recorder(indices)) {
    return {recorder, recorder->load(capture, recorder->nodes_of(indices))};
  }
  return Value(std::make_shared<trace::Element>(capture, std::vector<Operand>(indices)));
}

}  // namespace detail
}  // namespace treadle
