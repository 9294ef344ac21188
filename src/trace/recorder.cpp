// Records operations on traced values.
//
// In: operands and captures. Out: nodes of one builder, or loose trees. Read apply() first.
#include "trace/recorder.h"

#include <algorithm>
#include <iterator>
#include <ranges>

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

ir::NodeId some_node(ir::Builder& make, ir::Type type) {
  const ir::NodeId integer = make.input(ir::Input::q);
  switch (type) {
    case ir::Type::real: return make.input(ir::Input::score);
    case ir::Type::integer: return integer;
    case ir::Type::boolean: break;
  }
  return make(ir::Op::lt, integer, integer);
}

// A number as a constant, a loose value as some node of its type; nothing if it has none.
std::optional<ir::NodeId> stand_in(ir::Builder& make, const Operand& operand) {
  switch (operand.kind()) {
    case Operand::Kind::real: return make.real(operand.real());
    case Operand::Kind::integer: return make.integer(operand.integer());
    case Operand::Kind::boolean: return make.boolean(operand.integer() != 0);
    case Operand::Kind::value: break;
  }
  const Loose* loose = operand.value().loose().get();
  if (loose == nullptr) return std::nullopt;  // moved from
  if (loose->op == ir::Op::constant) return stand_in(make, loose->operands.front());
  return loose->type ? std::optional(some_node(make, *loose->type)) : std::nullopt;
}

// The type that a builder gives it. Operands have theirs already, so a long chain is walked once.
std::optional<ir::Type> type_of(const Loose& loose) {
  ir::Builder make;
  std::vector<ir::NodeId> nodes;
  for (const Operand& operand : loose.operands) {
    const auto node = stand_in(make, operand);
    if (!node) return std::nullopt;
    nodes.push_back(*node);
  }
  try {
    if (loose.op == ir::Op::constant) return make.type(nodes.front());
    if (loose.op != ir::Op::load) return make.type(make.apply(loose.op, std::move(nodes)));
    const ConstView& view = loose.capture->view();
    return make.type(make.load({"capture", view.dtype(), view.rank()}, std::move(nodes)));
  } catch (const Error&) {
    return std::nullopt;  // writing it down says why
  }
}

Value loose(ir::Op op, std::span<const Operand> operands,
            std::shared_ptr<const Capture> capture = nullptr) {
  auto made = std::make_shared<Loose>(op, std::vector(operands.begin(), operands.end()),
                                      std::move(capture), std::nullopt);
  made->type = type_of(*made);
  return Value(std::move(made));
}

}  // namespace

Loose::~Loose() {
  std::vector<Operand> left = std::move(operands);
  while (!left.empty()) {
    const Operand last = std::move(left.back());
    left.pop_back();
    const std::shared_ptr<const Loose>& inner = last.value().loose();
    if (inner == nullptr || inner.use_count() > 1) continue;
    // It ends with `last`; what it holds goes on here.
    auto& ending = const_cast<Loose&>(*inner);
    std::ranges::move(ending.operands, std::back_inserter(left));
    ending.operands.clear();
  }
}

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

// Operands first, from left to right, without recursion: it may be deep.
ir::NodeId Recorder::node_of(const std::shared_ptr<const Loose>& loose) {
  std::vector<const std::shared_ptr<const Loose>*> waiting{&loose};
  while (!waiting.empty()) {
    const std::shared_ptr<const Loose>& next = *waiting.back();
    const std::size_t before = waiting.size();
    if (!tightened_.contains(next)) {
      for (const Operand& operand : std::views::reverse(next->operands)) {
        const std::shared_ptr<const Loose>& inner = operand.value().loose();
        if (inner != nullptr && !tightened_.contains(inner)) waiting.push_back(&inner);
      }
      if (waiting.size() > before) continue;
      tightened_.emplace(next, written(*next));
    }
    waiting.pop_back();
  }
  return tightened_.at(loose);
}

ir::NodeId Recorder::written(const Loose& loose) {
  std::vector<ir::NodeId> nodes;
  for (const Operand& operand : loose.operands) {
    const auto& inner = operand.value().loose();
    nodes.push_back(inner != nullptr ? tightened_.at(inner) : node_of(operand));
  }
  if (loose.op == ir::Op::constant) return nodes.front();
  if (loose.op == ir::Op::load)
    return make_.load(table_->slot_of(*loose.capture), std::move(nodes));
  return make_.apply(loose.op, std::move(nodes));
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
  switch (operand.kind()) {
    case Operand::Kind::real: return ir::Type::real;
    case Operand::Kind::integer: return ir::Type::integer;
    case Operand::Kind::boolean: return ir::Type::boolean;
    case Operand::Kind::value: break;
  }
  const Value& value = operand.value();
  if (value.recorder() != nullptr) return value.recorder()->make().type(value.node());
  const Loose* loose = value.loose().get();
  if (loose != nullptr && loose->type) return *loose->type;
  // Writes it down to fail with the reason.
  Recorder scratch(std::make_shared<CaptureTable>());
  return scratch.make().type(scratch.node_of(operand));
}

}  // namespace treadle::trace
