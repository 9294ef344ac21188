// Random masks: windows, residues, blocks, documents, prefixes, in unions, intersections and
// negations.
#pragma once

#include "fuzz.h"
#include "ir/builder.h"

namespace treadle::test {

struct RandomMaskOptions {
  bool documents = true;  // doc[i], of every position
  bool numbers = false;   // sizes of windows and prefixes: num[i] for some i < 4
};

class RandomMask {
 public:
  explicit RandomMask(Random& random, const RandomMaskOptions& options = {})
      : random_(random), options_(options) {}

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
    const auto size = [&](std::int64_t low, std::int64_t high) {
      if (!options_.numbers || random_int(random_, 0, 2) == 0) return number(low, high);
      return build.load({"num", DType::i32, 1}, {number(0, 3)});
    };
    const auto document = [&](ir::NodeId of) { return build.load({"doc", DType::i32, 1}, {of}); };
    switch (random_int(random_, 0, 9)) {
      case 0: return build(ir::Op::ge, q, kv);
      case 1: return build(ir::Op::lt, apart, size(1, 30));
      case 2: return build(ir::Op::eq, build(ir::Op::mod, apart, number(2, 9)), number(0, 2));
      case 3: return build(ir::Op::ge, build(ir::Op::mod, kv, number(3, 9)), number(0, 4));
      case 4: {
        const ir::NodeId block = number(2, 12);
        return build(ir::Op::eq, build(ir::Op::floor_div, q, block),
                     build(ir::Op::floor_div, kv, block));
      }
      case 5:
        return options_.documents ? build(ir::Op::eq, document(q), document(kv)) : part(build);
      case 6: return build(ir::Op::lt, kv, size(0, 12));
      case 7: return build(ir::Op::le, build(ir::Op::abs, apart), size(0, 15));
      case 8:
        return build(ir::Op::lt, apart,
                     build(ir::Op::max, size(0, 20), build(ir::Op::mod, q, number(2, 9))));
      default: return build(ir::Op::eq, build.input(ir::Input::h), number(0, 1));
    }
  }

  Random& random_;
  RandomMaskOptions options_;
};

}  // namespace treadle::test
