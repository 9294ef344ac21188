// The operations of ops.def on LLVM values, with the meaning that ir/interpret.cpp defines.
//
//   Arithmetic ops(build, facts, DType::f32);
//   Result sum = ops.apply(graph, id, {a, b});     // id is an add
//
// Operands may be scalars or vectors of build.lanes(); the result is a vector if one of them is.
// Integers are i32 if all of the graph's fit (facts.narrow), else i64. With Reads::checked values
// carry poison.
#pragma once

#include <span>

#include "emit/llvm/mod.h"
#include "ir/graph.h"

namespace treadle::emit::llvm {

class Arithmetic {
 public:
  using Result = ModEmitter::Result;

  Arithmetic(Builder& build, const plan::ModFacts& facts, DType real)
      : build_(build), narrow_(facts.narrow), reads_(facts.reads), real_(real) {}

  [[nodiscard]] Builder& build() { return build_; }
  [[nodiscard]] bool checked() const { return reads_ == plan::Reads::checked; }
  [[nodiscard]] bool narrow() const { return narrow_; }

  // The types of scalars.
  [[nodiscard]] ::llvm::Type* real() {
    return real_ == DType::f64 ? build_.getDoubleTy() : build_.getFloatTy();
  }
  [[nodiscard]] ::llvm::IntegerType* integer() {
    return narrow_ ? build_.getInt32Ty() : build_.getInt64Ty();
  }

  Value* constant(const ir::Node& node);
  // An i32 as the graph's integer, any float as the graph's float.
  Value* from_index(Value* value);
  Value* from_real(Value* value);

  // Any operation but inputs, constants and loads.
  Result apply(const ir::Graph& graph, ir::NodeId id, std::span<const Result> operands);

  // Poison of either; null: none.
  Value* either(Value* a, Value* b);

 private:
  // The operands are all scalars or all vectors.
  Value* value(const ir::Graph& graph, const ir::Node& node, const Values& in);
  Value* poison(const ir::Node& node, std::span<const Result> in);

  // An operand of min or max, and whether it can be NaN.
  struct Compared {
    Value* value = nullptr;
    bool maybe_nan = true;
  };
  Value* smaller(Compared a, Compared b);
  Value* larger(Compared a, Compared b);
  Value* sign(Value* a);
  Value* floor_divide(Value* a, Value* b, bool rest);
  Value* shift(ir::Op op, Value* a, Value* by);
  Value* to_integer(Value* a);

  // The type itself, or a vector of it where `like` is a vector.
  ::llvm::Type* shaped(::llvm::Type* type, Value* like);
  // If one is a vector, all become vectors.
  void level(Values& values);

  Builder& build_;
  bool narrow_;
  plan::Reads reads_;
  DType real_;
};

}  // namespace treadle::emit::llvm
