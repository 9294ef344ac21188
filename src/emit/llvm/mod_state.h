// What a ModEmitter holds while it walks a plan: the inputs and the latest value of each node.
#pragma once

#include <memory>
#include <vector>

#include "emit/llvm/arithmetic.h"
#include "emit/llvm/captures.h"
#include "emit/llvm/mod.h"
#include "ir/per_node.h"
#include "plan/mod_plan.h"

namespace treadle::emit::llvm {

class Pieces;

struct ModEmitter::State {
  State(Builder& builder, plan::ModPlan mod, const ModOptions& given);
  ~State();

  Builder& build;
  plan::ModPlan plan;
  ModOptions options;
  Arithmetic ops;
  Captures captures;

  // Inputs as the graph's integers and floats; q, the first lane's, active and full by vector.
  Value *b = nullptr, *h = nullptr, *kv = nullptr, *score = nullptr, *grad = nullptr;
  Values q, first_q, active, full;
  // The key's place in its block, and the scratch that holds the staged reads.
  Value *position = nullptr, *scratch = nullptr;
  std::int64_t most = 0;

  // Values by level: those of head and key together, those of queries by vector.
  ir::PerNode<Result> uniform, pairs;
  std::vector<ir::PerNode<Result>> tile;
  // Of indices that reads take apart, by vector: what they are at the vector's first query, and at
  // the first key of a block.
  std::vector<ir::PerNode<Value*>> at_first_query, at_first_key;

  // If the plan is in pieces; then values of nodes are there, and not here.
  std::unique_ptr<Pieces> pieces;

  // The value of a node that was computed.
  Result at(ir::NodeId id, int vector);
  // Computes the wanted nodes of a level.
  void emit(plan::Level now, int vector);
  // Computes one, from others.
  Result compute(ir::NodeId id, int vector);
  // An index that is taken apart, or a part of it that changes with q, at the first query.
  Value* first_query(ir::NodeId id, int vector);
  // An input as it was given.
  Value* input(ir::Input input, int vector);

  // Computes what indices are at this key (an i64), for all vectors.
  void emit_first_key(Value* first_key);
  // The indices of a load, moved inside where the plan says so; with `last` in place of the last
  // one's value.
  Captures::Indices indices(ir::NodeId load, int vector, Value* last = nullptr);
  // The last index of a load that takes `reach` elements from there on, the graph's integer.
  Value* last_index(ir::NodeId load, Value* index, Value* reach);
  // Where a staged load's elements for a key are in the scratch, the lanes of a vector contiguous.
  // `place` is an i64.
  Value* scratch_address(std::size_t number, Value* place, int vector);

 private:
  Result& known(ir::NodeId id, int vector);
  Result read(ir::NodeId id, int vector);
  // The last index of a load in the lanes or backwards form, at the first query.
  Value* first_lane(ir::NodeId load, int vector, bool backwards, Value* active_lanes);
  // An index that is taken apart, or a part of it that changes with kv, at this key.
  Value* index_at_key(ir::NodeId id, int vector, Value* key);
};

}  // namespace treadle::emit::llvm
