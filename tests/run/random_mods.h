// Score mods and masks of random graphs over random captures, none of which a call can read outside
// of.
//
//   ForwardRun run(random_mods(random, {.longest = 200}));
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <vector>

#include "forward_run.h"
#include "ir/per_node.h"
#include "random_graph.h"
#include "random_points.h"

namespace treadle::test {

struct RandomMods {
  std::int64_t longest = 200;  // b, h, q and kv stay below
  bool special_constants = false;
};

namespace detail {

inline ir::NodeId import(ir::Builder& make, const ir::Graph& graph) {
  return make.copy(graph)[graph.output()];
}

// Whether there is nothing to compare, because the value is up to rounding: a sine, cosine or tangent
// of something that may be huge, as tan(5 ** 23), or an arcsine or the like of something that comes
// as close to one as rounding allows, where it is steep: asin(sin(score)).
inline bool rounds_to_anything(const ir::Graph& graph) {
  using ir::Op;
  const auto is_one_of = [](Op op, std::initializer_list<Op> ops) {
    return std::ranges::find(ops, op) != ops.end();
  };
  ir::PerNode<bool> grows(graph.size()), nears_one(graph.size());
  for (ir::NodeId id = 0; id < graph.size(); ++id) {
    const ir::Node& node = graph[id];
    const auto of_one = [&](const ir::PerNode<bool>& known) {
      return std::ranges::any_of(node.operands, [&](ir::NodeId operand) { return known[operand]; });
    };
    if (of_one(grows) && is_one_of(node.op, {Op::sin, Op::cos, Op::tan})) return true;
    if (of_one(nears_one) && is_one_of(node.op, {Op::asin, Op::acos})) return true;
    grows[id] = of_one(grows) ||
                is_one_of(node.op, {Op::pow, Op::exp, Op::exp2, Op::expm1, Op::sinh, Op::cosh});
    nears_one[id] =
        of_one(nears_one) || is_one_of(node.op, {Op::sin, Op::cos, Op::tanh, Op::erf, Op::cosh,
                                                 Op::exp, Op::exp2, Op::pow, Op::sigmoid});
  }
  return false;
}

inline ir::Graph random_score_mod(Random& random, const RandomMods& wanted) {
  using ir::Input;
  using ir::Op;
  ir::Builder make;
  const ir::NodeId score = make.input(Input::score);
  if (chance(random, 0.12)) return make.finish({score});
  const bool knows_score = chance(random, 0.6);
  GraphOptions options;
  options.operations = static_cast<int>(random_int(random, 1, 14));
  options.may_poison = false;
  options.special_constants = wanted.special_constants;
  options.slots = slots_of({DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32,
                            DType::i8, DType::boolean});
  if (!knows_score) options.inputs.erase(options.inputs.begin());
  ir::Graph graph = random_graph(random, options);
  while (rounds_to_anything(graph)) graph = random_graph(random, options);
  const ir::NodeId drawn = make.convert(import(make, graph), ir::Type::real);
  // Large scores say little: softmax becomes a choice, which rounding decides.
  ir::NodeId tamed = drawn;
  if (chance(random, 0.9)) {
    tamed = chance(random, 0.5) ? make(Op::clamp, drawn, make.real(-6), make.real(5.5))
                                : make(Op::mul, make(Op::tanh, drawn), make.real(4));
  }
  if (chance(random, 0.8)) tamed = make(Op::where, make(Op::isnan, drawn), score, tamed);
  const double form = random_real(random, 0, 1);
  const ir::NodeId result = form < 0.5   ? make(Op::add, score, tamed)
                            : form < 0.6 ? make(Op::add, tamed, score)
                            : form < 0.7 ? make(Op::mul, score, tamed)
                                         : tamed;
  return make.finish({result});
}

inline ir::Graph random_mask(Random& random, const RandomMods& wanted) {
  using ir::Input;
  using ir::Op;
  ir::Builder make;
  const ir::NodeId q = make.input(Input::q);
  const ir::NodeId kv = make.input(Input::kv);
  const double kind = random_real(random, 0, 1);
  if (kind < 0.12) return make.finish({make.boolean(true)});
  const ir::NodeId distance = make(Op::sub, q, kv);
  const ir::NodeId size = make.integer(random_int(random, 1, 40));
  const ir::NodeId zero = make.integer(0);
  ir::NodeId common = make(Op::ge, q, kv);
  if (kind < 0.3) common = make(Op::lt, make(Op::abs, distance), size);
  if (kind < 0.2) common = make(Op::eq, make(Op::mod, distance, size), zero);
  if (kind > 0.8)
    common = make(Op::eq, make(Op::floor_div, q, size), make(Op::floor_div, kv, size));
  if (kind > 0.85) common = make(Op::lt, kv, make(Op::add, make.input(Input::b), size));
  if (kind > 0.9) common = make.load({"bool_2", DType::boolean, 2}, {q, kv});
  if (chance(random, 0.25)) return make.finish({common});
  GraphOptions options = mask_options();
  options.operations = static_cast<int>(random_int(random, 2, 14));
  options.may_poison = false;
  options.special_constants = wanted.special_constants;
  if (chance(random, 0.2)) {  // a mask may compute with floats, too
    options.floats = true;
    options.slots = slots_of({DType::f32, DType::i32});
  }
  const ir::NodeId drawn = import(make, random_graph(random, options));
  const double how = random_real(random, 0, 1);
  return make.finish({how < 0.3   ? make(Op::logical_and, common, drawn)
                      : how < 0.6 ? make(Op::logical_or, common, drawn)
                      : how < 0.8 ? make(Op::logical_xor, common, drawn)
                                  : drawn});
}

inline void add_capture(Random& random, Mods& mods, const ir::Slot& slot, std::int64_t longest) {
  Dims shape, strides;
  std::int64_t last = 0;
  std::int64_t start = 0;
  for (int axis = 0; axis < slot.rank; ++axis) {
    shape.push_back(longest);
    const bool unit = axis + 1 == slot.rank && chance(random, 0.6);
    strides.push_back(unit ? 1 : random_int(random, 1, 9));
    const std::int64_t reach = (longest - 1) * strides.back();
    last += reach;
    if (!unit && chance(random, 0.15)) {
      start += reach;
      strides.back() = -strides.back();
    }
  }
  mods.memory.push_back(
      std::make_shared<const Tensor>(random_tensor(random, slot.dtype, {last + 1}, false)));
  const auto* data = static_cast<const std::byte*>(ConstView(*mods.memory.back()).data()) +
                     start * static_cast<std::int64_t>(size_of(slot.dtype));
  mods.captures.emplace_back(slot.name, ConstView(data, slot.dtype, shape, strides));
}

}  // namespace detail

// Captures are long enough for any index, and small all the same: elements of different indices
// share memory.
inline Mods random_mods(Random& random, const RandomMods& wanted = {}) {
  Mods mods;
  mods.score_mod = passes::simplify(detail::random_score_mod(random, wanted));
  mods.mask = passes::simplify(detail::random_mask(random, wanted));
  for (const ir::Graph* graph : {&mods.score_mod, &mods.mask}) {
    for (const ir::Slot& slot : graph->slots()) {
      if (std::ranges::find(mods.captures, slot.name, &Capture::name) == mods.captures.end())
        detail::add_capture(random, mods, slot, wanted.longest);
    }
  }
  return mods;
}

}  // namespace treadle::test
