// How tightly the infix forms bind, as in Python. One table for the printer and the parser.
#pragma once

#include "ir/op.h"

namespace treadle::ir {

// Loosest first.
enum class Binding : int {
  anything,     // what a pair of brackets, an argument or an index may hold
  disjunction,  // ||  or
  conjunction,  // &&  and
  negation,     // not
  comparison,   // ==  !=  <  <=  >  >=       (does not chain)
  bit_or,       // |
  bit_xor,      // ^
  bit_and,      // &
  shift,        // <<  >>
  sum,          // +  -
  product,      // *  /  //  %
  sign,         // -x  ~x  !x
  power,        // **                         (right to left, binds tighter than a sign on its left)
  primary,      // numbers, names, calls, indexing, brackets
};

inline Binding tighter(Binding binding) {
  return static_cast<Binding>(static_cast<int>(binding) + 1);
}

// Of operations that have an infix form; primary for all others.
Binding binding_of(Op op);

}  // namespace treadle::ir
