// What a ModEmitter holds while it walks a plan: the inputs and the latest value of each node.
#pragma once

#include <vector>

#include "emit/llvm/arithmetic.h"
#include "emit/llvm/captures.h"
#include "emit/llvm/mod.h"
#include "ir/per_node.h"
#include "plan/mod_plan.h"

namespace treadle::emit::llvm {

struct ModEmitter::State {
  State(Builder& builder, plan::ModPlan mod, const ModOptions& given);

  Builder& build;
  plan::ModPlan plan;
  ModOptions options;
  Arithmetic ops;
  Captures captures;

  // Inputs as the graph's integers and floats; q, active and full by vector.
  Value *b = nullptr, *h = nullptr, *kv = nullptr, *score = nullptr, *grad = nullptr;
  Values q, active, full;
  // The key's place in its block, and the scratch that holds the staged reads.
  Value *position = nullptr, *scratch = nullptr;
  std::int64_t most = 0;

  // Values by level: those of head and key together, those of queries by vector.
  ir::PerNode<Result> uniform, pairs;
  std::vector<ir::PerNode<Result>> tile;

  Result& at(ir::NodeId id, int vector);
  // Computes the wanted nodes of a level.
  void emit(plan::Level now, int vector);

  // The value that an integer would have if `input` were `value`; its plan::coefficient() of
  // `input` is known.
  Value* with(ir::NodeId id, int vector, ir::Input input, Value* value);
  // The indices of a load, with `last` in place of the last one's value.
  Captures::Indices indices(ir::NodeId load, int vector, Value* last = nullptr);
  // Where a staged load's elements for a key are in the scratch, the lanes of a vector contiguous.
  // `place` is an i64.
  Value* scratch_address(std::size_t number, Value* place, int vector);

 private:
  Result compute(ir::NodeId id, int vector);
  Value* input(ir::Input input, int vector);
  Result read(ir::NodeId id, int vector);
};

}  // namespace treadle::emit::llvm
