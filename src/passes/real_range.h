// What is known of a float over a box: an interval and whether it may be NaN.
//
// Good for evaluation in fp32 and in fp64: results are widened by more than an fp32 rounding, and
// what might overflow fp32 reaches to infinity. Exact operations (min, floor, neg, ...) are not
// widened.
#pragma once

#include <limits>

#include "ir/op.h"
#include "passes/integer_range.h"

namespace treadle::passes {

struct RealRange {
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  double low = -infinity;
  double high = infinity;
  bool may_be_nan = true;

  static RealRange anything() { return {}; }
  static RealRange between(double low, double high, bool may_be_nan = false) {
    return {low, high, may_be_nan};
  }
  // The constant as fp32 and as fp64 see it.
  static RealRange constant(double value);

  [[nodiscard]] bool contains(double value) const;
};

// The range with room for one fp32 rounding of a function within a few ulp.
RealRange widened(const RealRange& exact);

// Operations of Rule::arithmetic, Rule::real and Rule::rounding on floats. Unused operands are
// ignored.
RealRange apply(ir::Op op, const RealRange& a, const RealRange& b, const RealRange& c);

RealRange to_real(const IntegerRange& a);
IntegerRange to_integer(const RealRange& a);
RealRange join(const RealRange& a, const RealRange& b);

}  // namespace treadle::passes
