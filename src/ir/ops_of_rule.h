// The operations of one rule, as enums with the numbers that they have as an Op.
//
//   switch (info(op).rule) {
//     case Rule::test:
//       switch (static_cast<TestOp>(op)) {
//         case TestOp::isnan: ...
//         case TestOp::isinf: ...
//
// Such a switch lists no operation of another rule and still needs no default: the compiler names
// the file that a new row of ops.def makes incomplete.
#pragma once

#include <cstdint>

#include "ir/op.h"

namespace treadle::ir {

#define TREADLE_OP_leaf(name) name = static_cast<std::uint8_t>(Op::name),
enum class LeafOp : std::uint8_t {
#include "ir/ops_of_rule.def"
};

#define TREADLE_OP_arithmetic(name) name = static_cast<std::uint8_t>(Op::name),
enum class ArithmeticOp : std::uint8_t {
#include "ir/ops_of_rule.def"
};

#define TREADLE_OP_real(name) name = static_cast<std::uint8_t>(Op::name),
enum class RealOp : std::uint8_t {
#include "ir/ops_of_rule.def"
};

#define TREADLE_OP_rounding(name) name = static_cast<std::uint8_t>(Op::name),
enum class RoundingOp : std::uint8_t {
#include "ir/ops_of_rule.def"
};

#define TREADLE_OP_integer(name) name = static_cast<std::uint8_t>(Op::name),
enum class IntegerOp : std::uint8_t {
#include "ir/ops_of_rule.def"
};

#define TREADLE_OP_logical(name) name = static_cast<std::uint8_t>(Op::name),
enum class LogicalOp : std::uint8_t {
#include "ir/ops_of_rule.def"
};

#define TREADLE_OP_test(name) name = static_cast<std::uint8_t>(Op::name),
enum class TestOp : std::uint8_t {
#include "ir/ops_of_rule.def"
};

#define TREADLE_OP_conversion(name) name = static_cast<std::uint8_t>(Op::name),
enum class ConversionOp : std::uint8_t {
#include "ir/ops_of_rule.def"
};

}  // namespace treadle::ir
