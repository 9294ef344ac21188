// One graph at one point, for tests that look at single values.
//
//   EXPECT_EQ(evaluate(graph, {.score = 0.5, .q = 3}).real, 1.0);
//   EXPECT_EQ(evaluate(graph, {.h = 8}, {slopes}).poison,
//             "slopes: index 8 along dimension 0 is outside its length 8");
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ir/interpret.h"

namespace treadle::test {

struct Point {
  double score = 0, grad = 0;
  std::int64_t b = 0, h = 0, q = 0, kv = 0;
};

// The member of the output's type holds the value.
struct Outcome {
  double real = 0;
  std::int64_t integer = 0;
  bool boolean = false;
  std::string poison;  // the reason; empty when the value is sound
};

// Output 0. F is the float of the evaluation; views[i] is bound to graph.slots()[i].
template <class F = double>
Outcome evaluate(const ir::Graph& graph, const Point& at, std::vector<ConstView> views = {}) {
  const F score = static_cast<F>(at.score);
  const F grad = static_cast<F>(at.grad);
  ir::Interpreter<F> run(graph, std::move(views));
  run({.score = {&score, 1},
       .grad = {&grad, 1},
       .b = {&at.b, 1},
       .h = {&at.h, 1},
       .q = {&at.q, 1},
       .kv = {&at.kv, 1}},
      1);
  Outcome outcome;
  switch (graph.output_type()) {
    case ir::Type::real: outcome.real = static_cast<double>(run.reals(0)[0]); break;
    case ir::Type::integer: outcome.integer = run.integers(0)[0]; break;
    case ir::Type::boolean: outcome.boolean = run.booleans(0)[0] != 0; break;
  }
  if (!run.poison(0).empty() && run.poison(0)[0] != 0) outcome.poison = run.poison_reason(0, 0);
  return outcome;
}

}  // namespace treadle::test
