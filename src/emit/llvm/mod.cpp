// The nodes of a mod's graph as instructions, each emitted where mod.h says for its level.
//
// In: a plan (plan/mod_plan.h). Out: instructions. Read emit() and compute() first.
#include "emit/llvm/mod.h"

#include <utility>

#include "base/error.h"
#include "emit/llvm/mod_pieces.h"
#include "emit/llvm/mod_state.h"

namespace treadle::emit::llvm {

using ir::Input;
using ir::NodeId;
using ir::Op;
using Result = ModEmitter::Result;
using State = ModEmitter::State;

State::State(Builder& builder, plan::ModPlan mod, const ModOptions& given)
    : build(builder),
      plan(std::move(mod)),
      options(given),
      ops(builder, plan.facts, options.real),
      captures(ops, plan.graph, plan.facts),
      uniform(plan.graph.size()),
      pairs(uniform),
      tile(static_cast<std::size_t>(options.vectors), uniform),
      at_first_query(tile.size(), ir::PerNode<Value*>(plan.graph.size())),
      at_first_key(at_first_query) {
  if (!plan.pieces.whole()) pieces = std::make_unique<Pieces>(*this, options.frame);
}
State::~State() = default;

Result State::at(NodeId id, int vector) {
  return pieces ? pieces->at(id, vector) : known(id, vector);
}

Result& State::known(NodeId id, int vector) {
  switch (plan.level[id]) {
    case plan::Level::head:
    case plan::Level::key: return uniform[id];
    case plan::Level::queries: return tile[static_cast<std::size_t>(vector)][id];
    case plan::Level::pair: break;
  }
  return pairs[id];
}

void State::emit(plan::Level now, int vector) {
  if (pieces) return pieces->emit(now, vector);
  for (NodeId id = 0; id < plan.graph.size(); ++id) {
    if (plan.level[id] != now) continue;
    if (plan.at_first_query[id])
      at_first_query[static_cast<std::size_t>(vector)][id] = first_query(id, vector);
    if (plan.wanted[id]) known(id, vector) = compute(id, vector);
  }
}

// Parts that do not change are values like others.
Value* State::first_query(NodeId id, int vector) {
  const auto v = static_cast<std::size_t>(vector);
  if (plan.graph[id].op == Op::input) return first_q[v];
  std::vector<Result> operands;
  for (const NodeId operand : plan.graph[id].operands) {
    operands.push_back(!plan.at_first_query[operand] ? Result{.value = at(operand, vector).value}
                       : pieces ? Result{.value = pieces->at_first_query(operand, vector)}
                                : Result{.value = at_first_query[v][operand]});
  }
  return ops.apply(plan.graph, id, operands).value;
}

Value* State::index_at_key(NodeId id, int vector, Value* key) {
  const ir::PerNode<Value*>& parts = at_first_key[static_cast<std::size_t>(vector)];
  if (plan.graph[id].op == Op::input) return key;
  std::vector<Result> operands;
  for (const NodeId operand : plan.graph[id].operands) {
    operands.push_back(
        {.value = plan.at_first_key[operand] ? parts[operand] : at(operand, vector).value});
  }
  return ops.apply(plan.graph, id, operands).value;
}

void State::emit_first_key(Value* first_key) {
  Value* key = build.CreateTrunc(first_key, ops.integer());
  for (std::size_t v = 0; v < at_first_key.size(); ++v) {
    for (NodeId id = 0; id < plan.graph.size(); ++id) {
      if (!plan.at_first_key[id]) continue;
      const bool same = v > 0 && plan.level[id] == plan::Level::key;
      at_first_key[v][id] = same ? at_first_key[0][id] : index_at_key(id, static_cast<int>(v), key);
    }
  }
}

Result State::compute(NodeId id, int vector) {
  const ir::Node& node = plan.graph[id];
  if (node.op == Op::input) return {.value = input(node.input, vector)};
  if (node.op == Op::constant) return {.value = ops.constant(node)};
  if (node.op == Op::load) return read(id, vector);
  std::vector<Result> operands;
  for (const NodeId operand : node.operands) operands.push_back(at(operand, vector));
  return ops.apply(plan.graph, id, operands);
}

Value* State::input(Input input, int vector) {
  const auto given = [&](Value* value) {
    if (value == nullptr)
      base::internal_error("emit: a mod uses {}, which is not given", name_of(input));
    return value;
  };
  switch (input) {
    case Input::score: return given(score);
    case Input::grad: return given(grad);
    case Input::b: return given(b);
    case Input::h: return given(h);
    case Input::q: return given(q[static_cast<std::size_t>(vector)]);
    case Input::kv: return given(kv);
  }
  base::internal_error("emit: no such input");
}

Result State::read(NodeId id, int vector) {
  const ir::Node& node = plan.graph[id];
  const std::int32_t slot = node.slot;
  const auto v = static_cast<std::size_t>(vector);
  const plan::ReadForm form = plan.read[id];
  switch (form) {
    case plan::ReadForm::uniform:
    case plan::ReadForm::gather: return captures.read(slot, indices(id, vector));
    case plan::ReadForm::lanes:
    case plan::ReadForm::backwards: {
      const bool backwards = form == plan::ReadForm::backwards;
      Value* lanes = pieces ? pieces->active() : active[v];
      Value* all = pieces ? pieces->full() : full[v];
      Value* first =
          captures.address(slot, indices(id, vector, first_lane(id, vector, backwards, lanes)));
      return {.value = captures.read_lanes(slot, first, lanes, all, backwards)};
    }
    case plan::ReadForm::staged: break;
  }
  ::llvm::Type* type = build.vector(captures.element(slot));
  const auto number = static_cast<std::size_t>(plan.staged_number[id]);
  Value* place = pieces ? pieces->position() : position;
  Value* raw = build.load(type, scratch_address(number, place, vector));
  return {.value = captures.convert(slot, raw)};
}

Captures::Indices State::indices(NodeId load, int vector, Value* last) {
  Captures::Indices all;
  const std::vector<NodeId>& operands = plan.graph[load].operands;
  for (std::size_t axis = 0; axis < operands.size(); ++axis) {
    const bool replaced = last != nullptr && axis + 1 == operands.size();
    Captures::Index index{.at = replaced ? Result{.value = last} : at(operands[axis], vector),
                          .level = plan.level[operands[axis]]};
    if (!replaced && plan.clamps(load, axis))
      index.at.value = captures.clamped(plan.graph[load].slot, axis, index.at.value);
    all.push_back(index);
  }
  return all;
}

Value* State::last_index(NodeId load, Value* index, Value* reach) {
  const ir::Node& node = plan.graph[load];
  const std::size_t axis = node.operands.size() - 1;
  return plan.clamps(load, axis) ? captures.clamped(node.slot, axis, index, reach) : index;
}

Value* State::first_lane(NodeId load, int vector, bool backwards, Value* active_lanes) {
  const NodeId last = plan.graph[load].operands.back();
  Value* index = pieces ? pieces->at_first_query(last, vector)
                        : at_first_query[static_cast<std::size_t>(vector)][last];
  if (!plan.clamps(load, plan.graph[load].operands.size() - 1)) return index;
  Value* lanes = build.CreateUnaryIntrinsic(
      ::llvm::Intrinsic::ctpop,
      build.CreateBitCast(active_lanes, build.getIntNTy(static_cast<unsigned>(build.lanes()))));
  lanes = build.CreateZExtOrTrunc(lanes, ops.integer());
  if (!backwards) return last_index(load, index, lanes);
  // The last lane reads the lowest element.
  Value* back = build.CreateSub(lanes, ::llvm::ConstantInt::get(ops.integer(), 1));
  return build.CreateAdd(last_index(load, build.CreateSub(index, back), lanes), back);
}

ModEmitter::ModEmitter(Builder& build, plan::ModPlan plan, const ModOptions& options)
    : state_(std::make_unique<State>(build, std::move(plan), options)) {}
ModEmitter::~ModEmitter() = default;

void ModEmitter::head(Value* b, Value* h) {
  if (state_->pieces) {
    state_->captures.bind_when_read(state_->options.captures);
    state_->pieces->set_head();
  } else {
    state_->captures.bind(state_->options.captures);
  }
  state_->b = state_->ops.from_index(b);
  state_->h = state_->ops.from_index(h);
  state_->emit(plan::Level::head, 0);
}

void ModEmitter::queries(const Values& q, const Values& active) {
  state_->q.clear();
  state_->first_q.clear();
  state_->full.clear();
  state_->active = active;
  const bool in_lanes = state_->plan.reads_lanes();
  for (int v = 0; v < state_->options.vectors; ++v) {
    const auto vector = static_cast<std::size_t>(v);
    state_->q.push_back(state_->ops.from_index(q[vector]));
    state_->first_q.push_back(
        in_lanes ? state_->build.CreateExtractElement(state_->q.back(), std::uint64_t{0})
                 : nullptr);
    state_->full.push_back(in_lanes ? state_->build.CreateAndReduce(active[vector]) : nullptr);
    if (state_->pieces) state_->pieces->set_queries(v);
    state_->emit(plan::Level::queries, v);
  }
}

void ModEmitter::key(Value* kv, Value* position) {
  state_->kv = state_->ops.from_index(kv);
  state_->position = position;
  if (state_->pieces) state_->pieces->set_key();
  state_->emit(plan::Level::key, 0);
}

std::vector<Result> ModEmitter::pair(int vector, Value* score, Value* grad) {
  state_->score = score == nullptr ? nullptr : state_->ops.from_real(score);
  state_->grad = grad == nullptr ? nullptr : state_->ops.from_real(grad);
  state_->emit(plan::Level::pair, vector);
  std::vector<Result> results;
  for (const NodeId output : state_->plan.graph.outputs())
    results.push_back(state_->at(output, vector));
  return results;
}

}  // namespace treadle::emit::llvm
