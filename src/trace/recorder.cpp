// In: operands and captures; out: nodes of one builder and slots with names of their own.
#include "trace/recorder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace treadle::trace {
namespace {

bool same_memory(const ConstView& a, const ConstView& b) {
  return a.data() == b.data() && a.dtype() == b.dtype() && a.shape() == b.shape() && a.strides() == b.strides();
}

[[noreturn]] void fail_name(const std::string& name, bool by_the_user) {
  if (by_the_user) base::fail("capture \"{}\": two captures have this name; one name is one buffer", name);
  base::fail("capture \"{}\": a capture without a name, read earlier, is already called so; give it a name", name);
}

}  // namespace

bool CaptureTable::taken(std::string_view name) const {
  return std::ranges::find(captures_, name, &Capture::name) != captures_.end();
}

ir::Slot CaptureTable::slot_of(const Capture& capture) {
  const auto slot = [](const std::string& name, const ConstView& view) {
    return ir::Slot{name, view.dtype(), view.rank()};
  };
  for (std::size_t i = 0; i < captures_.size(); ++i) {
    const Capture& known = captures_[i];
    const bool same_name = !capture.name().empty() && known.name() == capture.name();
    if (same_name && !same_memory(known.view(), capture.view())) fail_name(capture.name(), named_[i]);
    const bool same_unnamed = capture.name().empty() && !named_[i] && same_memory(known.view(), capture.view());
    if (same_name || same_unnamed) return slot(known.name(), known.view());
  }
  std::string name = capture.name();
  auto next = std::ranges::count(named_, false);
  while (name.empty() || (capture.name().empty() && taken(name))) name = fmt::format("c{}", next++);
  ir::check_slot_name(name);
  captures_.push_back(capture);
  captures_.back().rename(name);
  named_.push_back(!capture.name().empty());
  return slot(name, capture.view());
}

ir::NodeId Recorder::load(const Capture& capture, std::vector<ir::NodeId> indices) {
  return make_.load(table_->slot_of(capture), std::move(indices));
}

ir::NodeId Recorder::node_of(const Operand& operand) {
  switch (operand.kind()) {
    case Operand::Kind::real: return make_.real(operand.real());
    case Operand::Kind::integer: return make_.integer(operand.integer());
    case Operand::Kind::boolean: return make_.boolean(operand.integer() != 0);
    case Operand::Kind::value: break;
  }
  const Value& value = operand.value();
  if (value.element() == nullptr) {
    if (value.recorder().get() != this) {
      base::fail("mod: it uses a value that was traced in another mod; a traced value lives inside one call of one mod");
    }
    return value.node();
  }
  return load(value.element()->capture, nodes_of(value.element()->indices));
}

std::vector<ir::NodeId> Recorder::nodes_of(std::span<const Operand> operands) {
  std::vector<ir::NodeId> nodes;
  for (const Operand& operand : operands) nodes.push_back(node_of(operand));
  return nodes;
}

std::shared_ptr<Recorder> find_recorder(std::span<const Operand> operands) {
  for (const Operand& operand : operands) {
    if (operand.kind() == Operand::Kind::value && operand.value().recorder() != nullptr) {
      return operand.value().recorder();
    }
  }
  return nullptr;
}

std::shared_ptr<Recorder> recorder_of(std::initializer_list<Operand> operands, std::string_view what) {
  const auto found = find_recorder(operands);
  if (found == nullptr) {
    base::fail("{}: no operand depends on the score or an index; combine the capture with one of them first", what);
  }
  return found;
}

}  // namespace treadle::trace
