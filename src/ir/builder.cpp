// Makes graphs: hash-consing, promotion and the canonical order.
//
// In: operations on nodes. Out: a Graph. Read apply() first, then finish().
#include "ir/builder.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace treadle::ir {
namespace {

constexpr std::array reserved_names{"inf", "nan", "true", "false", "and", "or", "not"};

bool is_zero_integer(const Node& node) {
  return node.op == Op::constant && node.type == Type::integer && node.integer() == 0;
}

}  // namespace

void check_slot_name(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool spelled = !name.empty() && letter(name[0]) &&
                       std::ranges::all_of(name, [&](char c) { return letter(c) || digit(c); });
  if (!spelled) {
    base::fail(
        "capture \"{}\": a name is a letter or underscore followed by letters, digits, underscores",
        name);
  }
  const bool taken =
      find_op(name) || std::ranges::find(reserved_names, name) != reserved_names.end() ||
      std::ranges::any_of(all_inputs, [&](Input input) { return name_of(input) == name; });
  if (taken) base::fail("capture \"{}\": the name already means something in the text form", name);
}

NodeId Builder::intern(Node node) {
  const auto [entry, fresh] = known_.try_emplace(node, size());
  if (fresh) nodes_.push_back(std::move(node));
  return entry->second;
}

NodeId Builder::input(Input input) {
  return intern({.op = Op::input, .type = type_of(input), .input = input, .operands = {}});
}

NodeId Builder::real(double value) {
  if (std::isnan(value)) value = the_nan;
  return intern({.op = Op::constant,
                 .type = Type::real,
                 .bits = std::bit_cast<std::uint64_t>(value),
                 .operands = {}});
}

NodeId Builder::integer(std::int64_t value) {
  return intern({.op = Op::constant,
                 .type = Type::integer,
                 .bits = static_cast<std::uint64_t>(value),
                 .operands = {}});
}

NodeId Builder::boolean(bool value) {
  return intern(
      {.op = Op::constant, .type = Type::boolean, .bits = value ? 1u : 0u, .operands = {}});
}

std::int32_t Builder::slot_index(const Slot& slot) {
  const auto known = std::ranges::find(slots_, slot.name, &Slot::name);
  if (known == slots_.end()) {
    check_slot_name(slot.name);
    slots_.push_back(slot);
    return static_cast<std::int32_t>(slots_.size() - 1);
  }
  if (*known != slot) {
    base::fail(
        "capture \"{}\" is used as {} of rank {} and as {} of rank {}; one name is one buffer",
        slot.name, treadle::name_of(known->dtype), known->rank, treadle::name_of(slot.dtype),
        slot.rank);
  }
  return static_cast<std::int32_t>(known - slots_.begin());
}

NodeId Builder::load(const Slot& slot, std::vector<NodeId> indices) {
  const std::int32_t index = slot_index(slot);
  if (static_cast<int>(indices.size()) != slot.rank) {
    base::fail("{}: {} {} given, the buffer has rank {}", slot.name, indices.size(),
               indices.size() == 1 ? "index" : "indices", slot.rank);
  }
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (type(indices[i]) == Type::real)
      base::fail("{}: index {} is a float; indices are integers", slot.name, i);
    indices[i] = convert(indices[i], Type::integer);
  }
  return intern(
      {.op = Op::load, .type = type_of(slot.dtype), .slot = index, .operands = std::move(indices)});
}

NodeId Builder::convert(NodeId id, Type type) {
  const Node& node = (*this)[id];
  if (node.type == type) return id;
  // Constants are converted here so that `score * 2` holds the float 2. A 64-bit integer that a
  // double cannot hold keeps its conversion, which rounds once to whatever float the evaluator has.
  if (node.op == Op::constant && node.type != Type::real) {
    const std::int64_t value = node.integer();
    constexpr std::int64_t exact = std::int64_t{1} << 53;
    if (type == Type::integer) return integer(value);
    if (type == Type::real && value >= -exact && value <= exact)
      return real(static_cast<double>(value));
  }
  switch (type) {
    case Type::boolean: return intern({.op = Op::to_bool, .type = type, .operands = {id}});
    case Type::integer: return intern({.op = Op::to_int, .type = type, .operands = {id}});
    case Type::real: return intern({.op = Op::to_float, .type = type, .operands = {id}});
  }
  base::internal_error("convert: type {}", static_cast<int>(type));
}

void Builder::promote(Op op, std::vector<NodeId>& operands) {
  const auto widest = [&](std::size_t first) {
    Type wide = Type::boolean;
    for (std::size_t i = first; i < operands.size(); ++i) wide = std::max(wide, type(operands[i]));
    return wide;
  };
  const auto convert_all = [&](std::size_t first, Type to) {
    for (std::size_t i = first; i < operands.size(); ++i) operands[i] = convert(operands[i], to);
  };
  const auto refuse = [&](Type seen, std::string_view rule) {
    base::fail("{}: got {} {}; it takes {}", info(op).text, seen == Type::integer ? "an" : "a",
               name_of(seen), rule);
  };
  switch (info(op).rule) {
    case Rule::leaf:
    case Rule::conversion: break;
    case Rule::arithmetic:
    case Rule::comparison: convert_all(0, std::max(widest(0), Type::integer)); break;
    case Rule::real:
    case Rule::rounding:
    case Rule::test: convert_all(0, Type::real); break;
    case Rule::integer:
      if (widest(0) == Type::real) refuse(Type::real, "integers");
      convert_all(0, Type::integer);
      break;
    case Rule::logical:
      if (widest(0) != Type::boolean) refuse(widest(0), "bools");
      break;
    case Rule::choice:
      if (type(operands[0]) != Type::boolean)
        refuse(type(operands[0]), "a bool as its first operand");
      convert_all(1, widest(1));
      break;
  }
}

NodeId Builder::apply(Op op, std::vector<NodeId> operands) {
  const OpInfo& row = info(op);
  if (row.rule == Rule::leaf) base::internal_error("apply: a leaf is not applied");
  if (static_cast<int>(operands.size()) != row.arity) {
    base::fail("{}: {} operand{} given, it takes {}", row.text, operands.size(),
               operands.size() == 1 ? "" : "s", row.arity);
  }
  if (row.rule == Rule::conversion) {
    const Type to = op == Op::to_float ? Type::real
                    : op == Op::to_int ? Type::integer
                                       : Type::boolean;
    return convert(operands[0], to);
  }
  // An integer is whole already.
  if (row.rule == Rule::rounding && type(operands[0]) != Type::real)
    return convert(operands[0], Type::integer);

  promote(op, operands);
  if ((op == Op::floor_div || op == Op::mod) && is_zero_integer((*this)[operands[1]])) {
    base::fail("{}: division by the constant 0", row.text);
  }
  const bool yields_bool = row.rule == Rule::comparison || row.rule == Rule::test;
  const Type result = yields_bool ? Type::boolean : type(operands.back());
  return intern({.op = op, .type = result, .operands = std::move(operands)});
}

NodeId Builder::copy(const Graph& from, NodeId id, const PerNode<NodeId>& to) {
  Node node = from[id];
  for (NodeId& operand : node.operands) operand = to[operand];
  // The operand may have become a constant, and the conversion of that is a constant.
  if (info(node.op).rule == Rule::conversion) return convert(node.operands[0], node.type);
  if (node.op == Op::load) node.slot = slot_index(from.slot(node.slot));
  return intern(std::move(node));
}

PerNode<NodeId> Builder::copy(const Graph& from) {
  PerNode<NodeId> to;
  for (NodeId id = 0; id < from.size(); ++id) to.push_back(copy(from, id, to));
  return to;
}

Graph Builder::finish(const std::vector<NodeId>& outputs) const {
  std::vector<Node> nodes;
  std::vector<Slot> slots;
  PerNode<NodeId> renamed(size(), -1);
  std::vector<std::int32_t> slot_renamed(slots_.size(), -1);

  // Depth first, operands left to right, without recursion: graphs may be deep.
  struct Frame {
    NodeId id;
    std::size_t next;
  };
  std::vector<Frame> stack;
  for (const NodeId output : outputs) {
    stack.push_back({output, 0});
    while (!stack.empty()) {
      Frame& top = stack.back();
      const Node& node = (*this)[top.id];
      if (renamed[top.id] >= 0) {
        stack.pop_back();
      } else if (top.next < node.operands.size()) {
        stack.push_back({node.operands[top.next++], 0});
      } else {
        Node copy = node;
        for (NodeId& operand : copy.operands) operand = renamed[operand];
        if (node.op == Op::load) {
          auto& slot = slot_renamed[static_cast<std::size_t>(node.slot)];
          if (slot < 0) {
            slot = static_cast<std::int32_t>(slots.size());
            slots.push_back(this->slot(node.slot));
          }
          copy.slot = slot;
        }
        renamed[top.id] = static_cast<NodeId>(nodes.size());
        nodes.push_back(std::move(copy));
        stack.pop_back();
      }
    }
  }
  std::vector<NodeId> renamed_outputs;
  for (const NodeId output : outputs) renamed_outputs.push_back(renamed[output]);
  return {std::move(nodes), std::move(slots), std::move(renamed_outputs)};
}

}  // namespace treadle::ir
