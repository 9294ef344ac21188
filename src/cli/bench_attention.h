// Forward and backward passes as cases: what is run, and how it is measured. The lists of them are
// in bench_forward.cpp, bench_backward.cpp and bench_sparse.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cli/bench_case.h"
#include "cli/peak.h"
#include "treadle/attention.h"
#include "treadle/dtype.h"
#include "treadle/executor.h"
#include "treadle/mod.h"

namespace treadle::cli {

struct Shape {
  std::int64_t heads = 8, key_heads = 8, length = 2048, dim = 64;
  DType dtype = DType::f32;
  bool interleaved = false;  // [batch, length, heads, dim] in memory
  std::string target = {};   // empty: this machine's own
};

struct ForwardCase {
  std::string name;
  Shape shape;
  std::function<Options(const Shape&)> options;
  std::function<Options(const Shape&)> compared_with = {};  // none: not compared
  std::string note = {};
  Dropout dropout = {};  // compared with the same without it
};

// Time, speed and share of work, as the row shows them.
void put(Measured& measured, const Share& share);

// Some rows are checked, then all of it is timed.
Measured measure_forward(const ForwardCase& c, Executor& executor);

struct BackwardCase {
  std::string name;
  std::int64_t heads = 8, length = 2048, dim = 64;
  DType dtype = DType::f32;
  MaskMod mask = {};
  // A score mod with a capture "c" whose gradient is taken; the ratio is to the same without it, or
  // to another such mod.
  std::function<ScoreMod(const BackwardCase&)> learned = {}, compared_with = {};
  std::string note = {};
  Dropout dropout = {};  // compared with the same without it
};

// A short piece of the same kind of problem is checked, then all of it is timed. Useful work is 2.5
// times the forward's.
Measured measure_backward(const BackwardCase& c, Executor& executor);

}  // namespace treadle::cli
