// How tightly each infix operation binds.
#include "ir/precedence.h"

namespace treadle::ir {

Binding binding_of(Op op) {
  const OpInfo& row = info(op);
  if (row.infix.empty()) return Binding::primary;
  if (row.rule == Rule::comparison) return Binding::comparison;
  if (row.infix == "||") return Binding::disjunction;
  if (row.infix == "&&") return Binding::conjunction;
  if (row.infix == "|") return Binding::bit_or;
  if (row.infix == "^") return Binding::bit_xor;
  if (row.infix == "&") return Binding::bit_and;
  if (row.infix == "<<" || row.infix == ">>") return Binding::shift;
  if (row.infix == "**") return Binding::power;
  if (row.arity == 1) return Binding::sign;  // - ~ !
  if (row.infix == "+" || row.infix == "-") return Binding::sum;
  return Binding::product;
}

}  // namespace treadle::ir
