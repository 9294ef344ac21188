// The pieces of a large mod as functions (plan/mod_pieces.h).
//
//   Pieces pieces(state, frame);
//   pieces.emit(Level::queries, v);    // calls the functions of this level, for vector v
//   pieces.at(id, v)                   // the value of a node, wherever it was computed
//
// A function takes two addresses: that of the areas uniform and pairs, and that of the vector's area
// of queries. So one function serves all vectors of a tile.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "emit/llvm/mod_state.h"
#include "plan/mod_pieces.h"

namespace treadle::emit::llvm {

class Pieces {
 public:
  using Result = ModEmitter::Result;
  using State = ModEmitter::State;

  Pieces(State& state, Value* frame);

  // What the functions find in front of the areas.
  void set_head();
  void set_queries(int vector);
  void set_scratch();
  void set_key();

  // The state's inputs of this level are stored, and then all its nodes are computed.
  void emit(plan::Level now, int vector);

  Result at(ir::NodeId id, int vector);
  Value* at_first_query(ir::NodeId id, int vector);

  // Inside a function: those of its vector.
  [[nodiscard]] bool inside() const { return inside_ != nullptr; }
  Value* active();
  Value* full();
  Value* first_lane();  // which lane of the tile its first lane is, an i64
  Value* position();
  Value* scratch();

 private:
  // A value of a node, and in which function it is known.
  struct Known {
    Result result;
    Value* first = nullptr;
    ::llvm::Function *of_result = nullptr, *of_first = nullptr;
  };
  // How values lie in the frame; null: none.
  struct Kept {
    ::llvm::Type *value = nullptr, *poison = nullptr, *first = nullptr;
  };

  void store_inputs(plan::Level now, int vector);
  std::vector<::llvm::Function*> make_functions(plan::Level now);
  void compute(ir::NodeId id);
  void begin_function();
  void end_function();

  Value* area(plan::Area area, int vector);
  Value* address(ir::NodeId id, std::int64_t offset, int vector);
  void keep(ir::NodeId id, const Result& result, int vector);
  void keep_first(ir::NodeId id, Value* first, int vector);
  void store(Value* value, Value* address);
  Value* load(::llvm::Type* type, Value* address);
  Value* header(plan::Area of, std::int64_t offset, int vector);

  State& state_;
  Builder& build_;
  plan::FrameLayout layout_;
  Value* frame_;
  ::llvm::Function* inside_ = nullptr;
  ir::PerNode<Known> known_;
  ir::PerNode<Kept> kept_;
  std::array<std::optional<std::vector<::llvm::Function*>>, 4> functions_;  // by level
};

}  // namespace treadle::emit::llvm
