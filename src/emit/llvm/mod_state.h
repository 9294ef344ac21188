// What a ModEmitter holds: for each node how often it is computed, how it is read, and its latest
// value.
#pragma once

#include <vector>

#include "emit/llvm/arithmetic.h"
#include "emit/llvm/captures.h"
#include "emit/llvm/mod.h"
#include "plan/dependence.h"
#include "plan/read_form.h"

namespace treadle::emit::llvm {

struct ModEmitter::State {
  State(Builder& builder, const ir::Graph& mod, const ModOptions& given);

  Builder& build;
  ir::Graph graph;
  ModOptions options;
  Arithmetic ops;
  Captures captures;

  // By node.
  std::vector<plan::Dependence> on;
  std::vector<plan::ReadForm> forms;
  std::vector<bool> wanted;
  std::vector<ir::NodeId> staged;  // the loads of that form

  // Inputs as the graph's integers and floats; q, active and full by vector.
  Value *b = nullptr, *h = nullptr, *kv = nullptr, *score = nullptr, *grad = nullptr;
  Values q, active, full;
  // The key's place in its block, and where staged reads wait for it.
  Value *position = nullptr, *scratch = nullptr;
  std::int64_t most = 0;

  // Values by level: those of head and key together, those of queries by vector.
  std::vector<Result> uniform, pairs;
  std::vector<std::vector<Result>> tile;

  [[nodiscard]] plan::Level level(ir::NodeId id) const {
    return plan::level_of(on[static_cast<std::size_t>(id)]);
  }
  Result& at(ir::NodeId id, int vector);
  // Computes the wanted nodes of a level.
  void emit(plan::Level now, int vector);

  // The value of an integer whose plan::coefficient() of `input` is known, were the input another one.
  Value* with(ir::NodeId id, int vector, ir::Input input, Value* value);
  // The indices of a load, `last` in place of the last one's value.
  Captures::Indices indices(ir::NodeId load, int vector, Value* last = nullptr);
  // Where its element for a key stands in the scratch, the lanes of a vector side by side. `place`
  // is an i64.
  Value* scratch_address(std::size_t number, Value* place, int vector);

 private:
  void mark_wanted();
  void want_except(ir::NodeId id, bool plan::Dependence::* through);
  Result compute(ir::NodeId id, int vector);
  Value* input(ir::Input input, int vector);
  Result read(ir::NodeId id, int vector);
};

}  // namespace treadle::emit::llvm
