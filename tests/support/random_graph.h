// Random graphs for tests: of a wanted type, over every operation of ops.def and over captures.
//
//   Random random(seed);
//   ir::Graph score_mod = random_graph(random, {});
//   ir::Graph mask = random_graph(random, mask_options());
//   ir::Graph smooth = random_graph(random, {.allow = [](ir::Op op) { return op != ir::Op::sign;
//   }});
//
// Values for its captures and points to evaluate it at come from random_points.h.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fuzz.h"
#include "ir/builder.h"

namespace treadle::test {

using Random = std::mt19937_64;

inline bool chance(Random& random, double probability) {
  return random_real(random, 0, 1) < probability;
}

template <class Range>
const auto& one_of(Random& random, const Range& range) {
  const auto last = static_cast<std::int64_t>(range.size()) - 1;
  return range[static_cast<std::size_t>(random_int(random, 0, last))];
}

// One capture of every given type and of every rank 0 .. 3, called f32_0, f32_1, ... bool_3.
inline std::vector<ir::Slot> slots_of(const std::vector<DType>& dtypes) {
  std::vector<ir::Slot> slots;
  for (const DType dtype : dtypes) {
    for (int rank = 0; rank <= 3; ++rank) {
      slots.push_back({std::string(name_of(dtype)) + "_" + std::to_string(rank), dtype, rank});
    }
  }
  return slots;
}

struct GraphOptions {
  ir::Type output = ir::Type::real;
  int outputs = 1;
  // So many operations are drawn; those that no output needs are dropped again.
  int operations = 16;
  std::vector<ir::Input> inputs{ir::Input::score, ir::Input::b, ir::Input::h, ir::Input::q,
                                ir::Input::kv};
  std::vector<ir::Slot> slots =
      slots_of({DType::f32, DType::f64, DType::i64, DType::i32, DType::boolean});
  // Without floats there are neither float constants nor operations on floats; leave the score and
  // float captures out as well, as mask_options() does.
  bool floats = true;
  // Zeros of both signs, infinities, NaN, tiny and huge numbers and the extremes of int64 among the
  // constants; without them, constants are small and ordinary.
  bool special_constants = true;
  // Reads with any integer as an index and divisions by any integer. Without it indices are the
  // plain inputs and divisors positive constants, so that only short captures can poison.
  bool may_poison = true;
  // Operations that may be drawn; nullptr for all. Promotions and the comparisons that stand for
  // bool leaves come all the same. A wanted output that no drawn node can give is a leaf.
  std::function<bool(ir::Op)> allow = nullptr;
};

// Integers and bools only, no score: what interval analysis sees of a mask.
inline GraphOptions mask_options() {
  return {.output = ir::Type::boolean,
          .inputs = {ir::Input::b, ir::Input::h, ir::Input::q, ir::Input::kv},
          .slots = slots_of({DType::i64, DType::i32, DType::boolean}),
          .floats = false};
}

inline constexpr std::array special_reals{
    0.0,
    -0.0,
    1.0,
    -1.0,
    std::numeric_limits<double>::infinity(),
    -std::numeric_limits<double>::infinity(),
    std::numeric_limits<double>::quiet_NaN(),
    std::numeric_limits<double>::denorm_min(),
    std::numeric_limits<double>::min(),
    std::numeric_limits<double>::max(),
    std::numeric_limits<double>::lowest(),
    1e-30,
    -1e30,
    0.5,
    2.5,
};
inline constexpr std::array special_integers{
    std::int64_t{0},
    std::int64_t{-1},
    std::int64_t{63},
    std::int64_t{64},
    std::numeric_limits<std::int64_t>::min(),
    std::numeric_limits<std::int64_t>::max(),
    (std::int64_t{1} << 53) + 1,
    std::int64_t{1} << 32,
};

namespace detail {

class GraphMaker {
 public:
  GraphMaker(Random& random, const GraphOptions& options) : random_(random), options_(options) {
    for (const ir::OpInfo& row : ir::op_table()) {
      if (drawable(row)) rows_.push_back(row);
    }
  }

  ir::Graph make() {
    for (int i = 0; i < options_.operations && !rows_.empty(); ++i)
      keep(draw(one_of(random_, rows_)));
    std::vector<ir::NodeId> outputs;
    for (int i = 0; i < options_.outputs; ++i) outputs.push_back(output());
    return make_.finish(outputs);
  }

 private:
  using Type = ir::Type;
  using Op = ir::Op;
  using Rule = ir::Rule;

  bool drawable(const ir::OpInfo& row) const {
    if (row.op == Op::input || row.op == Op::constant) return false;  // come as operands
    if (row.op == Op::load && options_.slots.empty()) return false;
    if (options_.allow && !options_.allow(row.op)) return false;
    const bool is_float = row.rule == Rule::real || row.rule == Rule::rounding ||
                          row.rule == Rule::test || row.op == Op::to_float;
    return options_.floats || !is_float;
  }

  std::vector<ir::NodeId>& pool(Type type) { return pools_[static_cast<std::size_t>(type)]; }
  void keep(ir::NodeId id) { pool(make_.type(id)).push_back(id); }

  // The node of the wanted type with the largest tree below it, so that most of what was drawn is
  // needed. It does not become an output again, unless it is the only one.
  ir::NodeId output() {
    std::vector<ir::NodeId>& made = pool(options_.output);
    if (made.empty()) return make_.convert(leaf(options_.output), options_.output);
    std::vector<double> tree(static_cast<std::size_t>(make_.size()),
                             1);  // shared nodes often count
    for (std::size_t id = 0; id < tree.size(); ++id) {
      for (const ir::NodeId operand : make_[static_cast<ir::NodeId>(id)].operands) {
        tree[id] += tree[static_cast<std::size_t>(operand)];
      }
    }
    const auto largest = std::ranges::max_element(
        made, {}, [&](ir::NodeId id) { return tree[static_cast<std::size_t>(id)]; });
    const ir::NodeId id = *largest;
    if (made.size() > 1) made.erase(largest);
    return id;
  }

  ir::NodeId draw(const ir::OpInfo& row) {
    switch (row.rule) {
      case Rule::leaf: return load(one_of(random_, options_.slots));
      case Rule::arithmetic:
      case Rule::comparison: return apply(row, numeric());
      case Rule::real:
      case Rule::rounding:
      case Rule::test: return apply(row, chance(random_, 0.9) ? Type::real : Type::integer);
      case Rule::integer: return apply(row, Type::integer);
      case Rule::logical: return apply(row, Type::boolean);
      case Rule::choice: {
        const Type type = chance(random_, 0.2) ? Type::boolean : numeric();
        return make_(row.op, operand(Type::boolean), operand(type), operand(type));
      }
      case Rule::conversion: return make_(row.op, operand(any()));
    }
    return -1;
  }

  Type numeric() { return options_.floats && chance(random_, 0.6) ? Type::real : Type::integer; }
  Type any() { return chance(random_, 0.25) ? Type::boolean : numeric(); }

  ir::NodeId apply(const ir::OpInfo& row, Type type) {
    std::vector<ir::NodeId> operands;
    for (int i = 0; i < row.arity; ++i) {
      // Now and then a narrower operand, to be promoted.
      const bool narrow =
          row.rule != Rule::logical && type != Type::boolean && chance(random_, 0.05);
      operands.push_back(operand(narrow ? static_cast<Type>(static_cast<int>(type) - 1) : type));
    }
    if (row.op == Op::floor_div || row.op == Op::mod) operands[1] = divisor(operands[1]);
    return make_.apply(row.op, operands);
  }

  ir::NodeId divisor(ir::NodeId candidate) {
    const ir::Node& node = make_[candidate];
    const bool zero = node.op == Op::constant && node.bits == 0;  // refused by the builder
    if (!zero && options_.may_poison && chance(random_, 0.4)) return candidate;
    return make_.integer(random_int(random_, 1, 9));
  }

  ir::NodeId load(const ir::Slot& slot) {
    std::vector<ir::NodeId> indices;
    for (int axis = 0; axis < slot.rank; ++axis) {
      if (!options_.may_poison || chance(random_, 0.5)) {
        indices.push_back(position());
      } else if (chance(random_, 0.5)) {
        indices.push_back(
            make_(Op::mod, operand(Type::integer), make_.integer(random_int(random_, 1, 4))));
      } else {
        indices.push_back(operand(Type::integer));
      }
    }
    return make_.load(slot, indices);
  }

  // A node of exactly this type, rather one that nothing uses yet.
  ir::NodeId operand(Type type) {
    const std::vector<ir::NodeId>& made = pool(type);
    if (made.empty() || chance(random_, 0.2)) return leaf(type);
    used_.resize(static_cast<std::size_t>(make_.size()));
    const auto unused = std::find_if(made.rbegin(), made.rend(), [&](ir::NodeId id) {
      return !used_[static_cast<std::size_t>(id)];
    });
    const bool fresh = unused != made.rend() && chance(random_, 0.7);
    const ir::NodeId id = fresh ? *unused : one_of(random_, made);
    used_[static_cast<std::size_t>(id)] = true;
    return id;
  }

  ir::NodeId leaf(Type type) {
    if (chance(random_, 0.6)) {
      std::vector<ir::Input> fitting;
      for (const ir::Input input : options_.inputs) {
        if (type_of(input) == type) fitting.push_back(input);
      }
      if (!fitting.empty()) return make_.input(one_of(random_, fitting));
    }
    switch (type) {
      case Type::real: return make_.real(real());
      case Type::integer: return make_.integer(integer());
      case Type::boolean: break;
    }
    if (chance(random_, 0.1)) return make_.boolean(chance(random_, 0.5));
    return make_(chance(random_, 0.5) ? Op::ge : Op::lt, position(), position());
  }

  // b, h, q or kv.
  ir::NodeId position() {
    std::vector<ir::Input> integers;
    for (const ir::Input input : options_.inputs) {
      if (type_of(input) == Type::integer) integers.push_back(input);
    }
    return integers.empty() ? make_.integer(random_int(random_, 0, 2))
                            : make_.input(one_of(random_, integers));
  }

  double real() {
    if (options_.special_constants && chance(random_, 0.3)) return one_of(random_, special_reals);
    // Short decimals read well in failures; full doubles test the printer.
    if (chance(random_, 0.5)) return static_cast<double>(random_int(random_, -32, 32)) / 8;
    return random_real(random_, -4, 4);
  }

  std::int64_t integer() {
    if (options_.special_constants && chance(random_, 0.1))
      return one_of(random_, special_integers);
    return random_int(random_, -3, 12);
  }

  Random& random_;
  const GraphOptions& options_;
  std::vector<ir::OpInfo> rows_;
  std::array<std::vector<ir::NodeId>, 3> pools_;  // by type, in the order of making
  std::vector<bool> used_;                        // by node
  ir::Builder make_;
};

}  // namespace detail

inline ir::Graph random_graph(Random& random, const GraphOptions& options) {
  return detail::GraphMaker(random, options).make();
}

}  // namespace treadle::test
