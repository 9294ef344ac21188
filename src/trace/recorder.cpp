// In: operands and captures; out: nodes of one builder, or loose trees.
#include "trace/recorder.h"

#include "base/error.h"

namespace treadle::trace {
namespace {

// The recorder that the operands were traced with, or null if none was traced.
std::shared_ptr<Recorder> recorder_of(std::span<const Operand> operands) {
  for (const Operand& operand : operands) {
    if (operand.kind() == Operand::Kind::value && operand.value().recorder() != nullptr) {
      return operand.value().recorder();
    }
  }
  return nullptr;
}

Value loose(ir::Op op, std::span<const Operand> operands,
            std::shared_ptr<const Capture> capture = nullptr) {
  return Value(std::make_shared<Loose>(op, std::vector(operands.begin(), operands.end()),
                                       std::move(capture)));
}

}  // namespace

ir::NodeId Recorder::node_of(const Operand& operand) {
  switch (operand.kind()) {
    case Operand::Kind::real: return make_.real(operand.real());
    case Operand::Kind::integer: return make_.integer(operand.integer());
    case Operand::Kind::boolean: return make_.boolean(operand.integer() != 0);
    case Operand::Kind::value: break;
  }
  const Value& value = operand.value();
  if (value.loose() != nullptr) return node_of(value.loose());
  if (value.recorder().get() != this) {
    base::fail(
        "mod: it uses a value that was traced in another mod; a traced value lives inside one call "
        "of one mod");
  }
  return value.node();
}

ir::NodeId Recorder::node_of(const std::shared_ptr<const Loose>& loose) {
  if (const auto known = tightened_.find(loose); known != tightened_.end()) return known->second;
  std::vector<ir::NodeId> nodes = nodes_of(loose->operands);
  const ir::NodeId node = loose->op == ir::Op::constant ? nodes.front()
                          : loose->op == ir::Op::load
                              ? make_.load(table_->slot_of(*loose->capture), std::move(nodes))
                              : make_.apply(loose->op, std::move(nodes));
  tightened_.emplace(loose, node);
  return node;
}

std::vector<ir::NodeId> Recorder::nodes_of(std::span<const Operand> operands) {
  std::vector<ir::NodeId> nodes;
  for (const Operand& operand : operands) nodes.push_back(node_of(operand));
  return nodes;
}

Value apply(ir::Op op, std::span<const Operand> operands) {
  const auto recorder = recorder_of(operands);
  if (recorder == nullptr) return loose(op, operands);
  return {recorder, recorder->make_.apply(op, recorder->nodes_of(operands))};
}

Value load(const Capture& capture, std::span<const Operand> indices) {
  const auto recorder = recorder_of(indices);
  if (recorder == nullptr) return loose(ir::Op::load, indices, std::make_shared<Capture>(capture));
  return {recorder,
          recorder->make_.load(recorder->table_->slot_of(capture), recorder->nodes_of(indices))};
}

Value constant(const Operand& number) { return loose(ir::Op::constant, {&number, 1}); }

ir::Type type_of(const Operand& operand) {
  const bool traced =
      operand.kind() == Operand::Kind::value && operand.value().recorder() != nullptr;
  if (traced) return operand.value().recorder()->make().type(operand.value().node());
  Recorder scratch(std::make_shared<CaptureTable>());
  return scratch.make().type(scratch.node_of(operand));
}

}  // namespace treadle::trace
