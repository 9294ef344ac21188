// Functions for the pieces of a mod, and the values that they pass through the frame.
//
// In: a state with a plan in pieces. Out: functions of its module, and calls of them. Read emit() and
// make_functions() first.
#include "emit/llvm/mod_pieces.h"

#include <llvm/IR/Module.h>

namespace treadle::emit::llvm {
namespace {

using ir::NodeId;
using plan::Area;

// Offsets in front of the area uniform, and of an area of queries.
constexpr std::int64_t captures_at = 0, scratch_at = 8, position_at = 16;
constexpr std::int64_t first_lane_at = 0, full_at = 8, active_at = 16;

::llvm::Type* bytes_for(Builder& build, ::llvm::Type* bits) {
  ::llvm::Type* byte = build.getInt8Ty();
  return bits->isVectorTy() ? build.vector(byte) : byte;
}

}  // namespace

Pieces::Pieces(State& state, Value* frame)
    : state_(state),
      build_(state.build),
      layout_(
          plan::frame_layout(state.plan.pieces, state.build.lanes(),
                             state.options.real == DType::f64 || !state.plan.facts.narrow ? 8 : 4)),
      frame_(frame),
      known_(state.plan.graph.size()),
      kept_(state.plan.graph.size()) {}

// --- the frame

Value* Pieces::area(Area area, int vector) {
  if (!inside()) {
    return build_.element(build_.getInt8Ty(), frame_, build_.index(layout_.begin(area, vector)));
  }
  if (area == Area::queries) return inside_->getArg(1);
  return build_.element(build_.getInt8Ty(), inside_->getArg(0),
                        build_.index(layout_.begin(area, 0)));
}

Value* Pieces::address(NodeId id, std::int64_t offset, int vector) {
  Value* begin = area(plan::area_of(state_.plan.level[id]), vector);
  return build_.element(build_.getInt8Ty(), begin, build_.index(offset));
}

// Bits are kept as bytes.
void Pieces::store(Value* value, Value* address) {
  if (value->getType()->getScalarType()->isIntegerTy(1))
    value = build_.CreateZExt(value, bytes_for(build_, value->getType()));
  build_.store(value, address);
}

Value* Pieces::load(::llvm::Type* type, Value* address) {
  if (!type->getScalarType()->isIntegerTy(1)) return build_.load(type, address);
  return build_.CreateTrunc(build_.load(bytes_for(build_, type), address), type);
}

void Pieces::keep(NodeId id, const Result& result, int vector) {
  const std::int32_t place = state_.plan.pieces.place[id];
  if (place < 0) return;
  const Area area = plan::area_of(state_.plan.level[id]);
  kept_[id].value = result.value->getType();
  store(result.value, address(id, layout_.value(area, place), vector));
  if (result.poison == nullptr) return;
  kept_[id].poison = result.poison->getType();
  store(result.poison, address(id, layout_.poison(area, place), vector));
}

void Pieces::keep_first(NodeId id, Value* first, int vector) {
  const std::int32_t place = state_.plan.pieces.first_place[id];
  kept_[id].first = first->getType();
  store(first, address(id, layout_.value(plan::area_of(state_.plan.level[id]), place), vector));
}

Pieces::Result Pieces::at(NodeId id, int vector) {
  const ir::Node& node = state_.plan.graph[id];
  if (node.op == ir::Op::constant) return {.value = state_.ops.constant(node)};
  Known& known = known_[id];
  // Outside, each use is a load of its own: the frame changes with every call.
  if (inside() && known.of_result == inside_) return known.result;
  const Area area = plan::area_of(state_.plan.level[id]);
  const std::int32_t place = state_.plan.pieces.place[id];
  Result result;
  result.value = load(kept_[id].value, address(id, layout_.value(area, place), vector));
  if (kept_[id].poison != nullptr)
    result.poison = load(kept_[id].poison, address(id, layout_.poison(area, place), vector));
  known.result = result;
  known.of_result = inside_;
  return result;
}

Value* Pieces::at_first_query(NodeId id, int vector) {
  Known& known = known_[id];
  if (inside() && known.of_first == inside_) return known.first;
  const std::int32_t place = state_.plan.pieces.first_place[id];
  const Area area = plan::area_of(state_.plan.level[id]);
  known.first = load(kept_[id].first, address(id, layout_.value(area, place), vector));
  known.of_first = inside_;
  return known.first;
}

// --- what else functions need

Value* Pieces::header(Area of, std::int64_t offset, int vector) {
  return build_.element(build_.getInt8Ty(), area(of, vector), build_.index(offset));
}

void Pieces::set_head() {
  build_.CreateAlignedStore(state_.options.captures, header(Area::uniform, captures_at, 0),
                            ::llvm::Align(8));
}

void Pieces::set_queries(int vector) {
  const auto v = static_cast<std::size_t>(vector);
  store(build_.index(std::int64_t{vector} * build_.lanes()),
        header(Area::queries, first_lane_at, vector));
  store(state_.active[v], header(Area::queries, active_at, vector));
  if (state_.full[v] != nullptr) store(state_.full[v], header(Area::queries, full_at, vector));
}

void Pieces::set_key() { store(state_.position, header(Area::uniform, position_at, 0)); }

void Pieces::set_scratch() {
  build_.CreateAlignedStore(state_.scratch, header(Area::uniform, scratch_at, 0), ::llvm::Align(8));
}

Value* Pieces::active() {
  return load(build_.vector(build_.getInt1Ty()), header(Area::queries, active_at, 0));
}
Value* Pieces::full() { return load(build_.getInt1Ty(), header(Area::queries, full_at, 0)); }
Value* Pieces::first_lane() {
  return load(build_.getInt64Ty(), header(Area::queries, first_lane_at, 0));
}
Value* Pieces::position() {
  return load(build_.getInt64Ty(), header(Area::uniform, position_at, 0));
}
Value* Pieces::scratch() {
  return build_.CreateAlignedLoad(build_.getPtrTy(), header(Area::uniform, scratch_at, 0),
                                  ::llvm::Align(8));
}

// --- functions

void Pieces::emit(plan::Level now, int vector) {
  store_inputs(now, vector);
  auto& functions = functions_[static_cast<std::size_t>(now)];
  if (!functions) functions = make_functions(now);
  Value* uniform = area(Area::uniform, 0);
  Value* queries = area(Area::queries, vector);
  for (::llvm::Function* function : *functions) build_.CreateCall(function, {uniform, queries});
}

void Pieces::store_inputs(plan::Level now, int vector) {
  const plan::ModPlan& plan = state_.plan;
  for (NodeId id = 0; id < plan.graph.size(); ++id) {
    if (plan.graph[id].op != ir::Op::input || plan.level[id] != now) continue;
    if (plan.at_first_query[id])
      keep_first(id, state_.first_q[static_cast<std::size_t>(vector)], vector);
    if (plan.wanted[id]) keep(id, {.value = state_.input(plan.graph[id].input, vector)}, vector);
  }
}

// The functions work for any vector; while they are made, it is called 0.
std::vector<::llvm::Function*> Pieces::make_functions(plan::Level now) {
  const plan::ModPlan& plan = state_.plan;
  const ::llvm::IRBuilderBase::InsertPointGuard outside(build_);
  std::vector<::llvm::Function*> functions;
  std::int32_t piece = -1;
  for (NodeId id = 0; id < plan.graph.size(); ++id) {
    if (plan.level[id] != now || plan.pieces.piece[id] < 0) continue;
    if (!plan.wanted[id] && !plan.at_first_query[id]) continue;
    if (plan.pieces.piece[id] != piece) {
      if (inside()) end_function();
      begin_function();
      functions.push_back(inside_);
      piece = plan.pieces.piece[id];
    }
    compute(id);
  }
  if (inside()) end_function();
  return functions;
}

void Pieces::compute(NodeId id) {
  Known& known = known_[id];
  if (state_.plan.at_first_query[id]) {
    known.first = state_.first_query(id, 0);
    known.of_first = inside_;
    keep_first(id, known.first, 0);
  }
  if (!state_.plan.wanted[id]) return;
  known.result = state_.compute(id, 0);
  known.of_result = inside_;
  keep(id, known.result, 0);
}

void Pieces::begin_function() {
  ::llvm::Module& module = *build_.GetInsertBlock()->getModule();
  ::llvm::Type* pointer = build_.getPtrTy();
  auto* type = ::llvm::FunctionType::get(build_.getVoidTy(), {pointer, pointer}, false);
  inside_ = make_function(module, "piece", type, build_.target());
  inside_->setLinkage(::llvm::GlobalValue::InternalLinkage);
  inside_->addFnAttr(::llvm::Attribute::NoInline);
  build_.SetInsertPoint(::llvm::BasicBlock::Create(build_.getContext(), "entry", inside_));
  state_.captures.bind_when_read(
      build_.CreateAlignedLoad(pointer, header(Area::uniform, captures_at, 0), ::llvm::Align(8)));
}

void Pieces::end_function() {
  build_.CreateRetVoid();
  inside_ = nullptr;
  state_.captures.bind_when_read(state_.options.captures);
}

}  // namespace treadle::emit::llvm
