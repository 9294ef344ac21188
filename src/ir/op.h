// Operations and types, from the table ops.def.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "treadle/dtype.h"

namespace treadle::ir {

// The three types of values. Integers have 64 bits; how many bits a float has is the evaluator's
// choice (32 or 64).
enum class Type : std::uint8_t { boolean, integer, real };

// What a function may read besides captured buffers. `grad` exists in derivatives only: the
// incoming gradient.
enum class Input : std::uint8_t { score, b, h, q, kv, grad };
inline constexpr std::array all_inputs{Input::score, Input::b,  Input::h,
                                       Input::q,     Input::kv, Input::grad};

enum class Op : std::uint8_t {
#define TREADLE_OP(name, text, infix, arity, rule) name,
#include "ir/ops.def"
#undef TREADLE_OP
};

// Which types go in and come out.
enum class Rule : std::uint8_t {
  leaf,        // its own
  arithmetic,  // all integer or all float, and so is the result
  real,        // all float -> float
  rounding,    // float -> float
  integer,     // all integer -> integer
  comparison,  // two integers or two floats -> bool
  logical,     // all bool -> bool
  test,        // float -> bool
  choice,      // bool, and two of one type -> that type
  conversion,  // anything -> what the name says
};

struct OpInfo {
  Op op;
  std::string_view text;
  std::string_view infix;
  int arity;
  Rule rule;
};

// The rows of ops.def, in order.
inline constexpr OpInfo op_rows[] = {
#define TREADLE_OP(name, text, infix, arity, rule) {Op::name, text, infix, arity, Rule::rule},
#include "ir/ops.def"
#undef TREADLE_OP
};
constexpr std::span<const OpInfo> op_table() { return op_rows; }
constexpr const OpInfo& info(Op op) { return op_rows[static_cast<std::size_t>(op)]; }
std::optional<Op> find_op(std::string_view text);

std::string_view name_of(Type type);
std::string_view name_of(Input input);
Type type_of(Input input);

// The type that reading an element of this dtype gives.
Type type_of(DType dtype);

}  // namespace treadle::ir
