// Random masks: windows, residues, blocks, documents, prefixes, in unions, intersections and
// negations.
#pragma once

#include "fuzz.h"
#include "ir/builder.h"

namespace treadle::test {

class RandomMask {
 public:
  explicit RandomMask(Random& random) : random_(random) {}

  ir::NodeId make(ir::Builder& build, int parts) {
    if (parts <= 1) return part(build);
    const int left = static_cast<int>(random_int(random_, 1, parts - 1));
    const ir::NodeId a = make(build, left), b = make(build, parts - left);
    const auto kind = random_int(random_, 0, 9);
    if (kind == 0) return build(ir::Op::logical_not, build(ir::Op::logical_and, a, b));
    if (kind == 1) return build(ir::Op::where, part(build), a, b);
    return build(kind < 6 ? ir::Op::logical_or : ir::Op::logical_and, a, b);
  }

 private:
  ir::NodeId part(ir::Builder& build) {
    const ir::NodeId q = build.input(ir::Input::q), kv = build.input(ir::Input::kv);
    const ir::NodeId apart = build(ir::Op::sub, q, kv);
    const auto number = [&](std::int64_t low, std::int64_t high) {
      return build.integer(random_int(random_, low, high));
    };
    const auto document = [&](ir::NodeId of) { return build.load({"doc", DType::i32, 1}, {of}); };
    switch (random_int(random_, 0, 9)) {
      case 0: return build(ir::Op::ge, q, kv);
      case 1: return build(ir::Op::lt, apart, number(1, 30));
      case 2: return build(ir::Op::eq, build(ir::Op::mod, apart, number(2, 9)), number(0, 2));
      case 3: return build(ir::Op::ge, build(ir::Op::mod, kv, number(3, 9)), number(0, 4));
      case 4: {
        const ir::NodeId size = number(2, 12);
        return build(ir::Op::eq, build(ir::Op::floor_div, q, size),
                     build(ir::Op::floor_div, kv, size));
      }
      case 5: return build(ir::Op::eq, document(q), document(kv));
      case 6: return build(ir::Op::lt, kv, number(0, 12));
      case 7: return build(ir::Op::le, build(ir::Op::abs, apart), number(0, 15));
      case 8:
        return build(ir::Op::lt, apart,
                     build(ir::Op::max, number(0, 20), build(ir::Op::mod, q, number(2, 9))));
      default: return build(ir::Op::eq, build.input(ir::Input::h), number(0, 1));
    }
  }

  Random& random_;
};

}  // namespace treadle::test
