// A Bound: what one node of a graph can be over a box, and how bounds combine.
#pragma once

#include "ir/op.h"
#include "passes/integer_range.h"
#include "passes/real_range.h"

namespace treadle::passes {

// The part of the node's type means something; poison is possible in every type.
struct Bound {
  IntegerRange integer;
  RealRange real;
  bool may_be_true = true, may_be_false = true;
  bool may_be_poison = false;
};

inline Bound of_integer(const IntegerRange& range) { return {.integer = range}; }
inline Bound of_real(const RealRange& range) { return {.real = range}; }
inline Bound of_truth(bool may_be_true, bool may_be_false) {
  return {.may_be_true = may_be_true, .may_be_false = may_be_false};
}

// Operations of Rule::comparison; poison is the caller's business.
Bound compare(ir::Op op, const IntegerRange& a, const IntegerRange& b, const Counts& counts);
Bound compare(ir::Op op, const RealRange& a, const RealRange& b);

// Three-valued: a sound operand that decides alone makes the other one's poison irrelevant.
Bound conjunction(const Bound& a, const Bound& b);
Bound negation(const Bound& a);

// One of the two, it is not known which.
Bound either(const Bound& a, const Bound& b, ir::Type type);

}  // namespace treadle::passes
