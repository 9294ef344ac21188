// A ModEmitter in a small kernel of its own, to be compared with the interpreter.
//
//   ModRunner run(graph, {.target = plan::find_target("haswell"), .vectors = 2});
//   Outcomes got = run({.q = {4, 5, 6}, .keys = {0, 1}, .score = scores}, views);
//   got.reals[0][1 * 3 + 2]      // output 0 at key 1 and query 6
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "emit/llvm/mod.h"
#include "emit/llvm/module.h"
#include "emulator.h"
#include "ir/graph.h"
#include "jit/engine.h"
#include "plan/target.h"
#include "treadle/view.h"

namespace treadle::plan {

// In the messages of tests that run once per target.
inline void PrintTo(const Target& target, std::ostream* out) { *out << target.name; }

}  // namespace treadle::plan

namespace treadle::test {

struct Setting {
  plan::Target target;
  plan::ModFacts facts;
  DType compute = DType::f32;  // what the lanes are counted by
  DType real = DType::f32;     // what the graph is evaluated in
  int vectors = 1;
  plan::PieceSize pieces{};

  [[nodiscard]] int lanes() const { return target.lanes(compute); }
  [[nodiscard]] std::int64_t width() const { return std::int64_t{vectors} * lanes(); }
};

// "haswell narrow checked f64 ..."
std::string to_text(const Setting& setting);

// Every target that this machine can run and that has IR of its own, and one whose vectors are
// twice as wide as its registers.
std::vector<plan::Target> targets_here();

// Of targets_here() those on which case `number` of a test is run. Making kernels takes most of the
// time, so that is one of them, which is another with every seed of fuzz.h; all of them when every
// round of random tests is run.
std::vector<plan::Target> targets_in_turn(std::uint64_t number);

// For tests that run once per target: "haswell_64".
inline std::string name_of_target(const testing::TestParamInfo<plan::Target>& info) {
  std::string name = info.param.name + "_" + std::to_string(info.param.vector_bytes);
  std::ranges::replace(name, '-', '_');
  return name;
}

// One tile of queries and a block of ascending keys. score and grad have a value for each key and,
// within it, each query.
struct Tile {
  std::int32_t b = 0, h = 0;
  std::vector<std::int32_t> q, keys;
  std::vector<double> score = {}, grad = {};

  [[nodiscard]] std::int64_t pairs() const {
    return static_cast<std::int64_t>(q.size() * keys.size());
  }
};

// By output, then by pair: key * queries + query. What is of another type than asked for is
// converted.
struct Outcomes {
  std::vector<std::vector<double>> reals;
  std::vector<std::vector<std::int64_t>> integers;  // bools are 0 and 1
  std::vector<std::vector<std::uint8_t>> poison;
};

// The kernel, called "mod".
emit::llvm::Module emit_mod(const ir::Graph& graph, const Setting& setting);

// Kernels for aarch64 run in an emulator; they must not call the C library.
class ModRunner {
 public:
  ModRunner(const ir::Graph& graph, const Setting& setting);

  Outcomes operator()(const Tile& tile, const std::vector<ConstView>& views) const;

  // Of scratch for reads that are staged, for each pair.
  [[nodiscard]] std::int64_t staged_bytes() const { return scratch_.staged; }

 private:
  ir::Graph graph_;
  Setting setting_;
  plan::ModScratch scratch_;
  jit::Engine::Code kernel_;            // if it runs here
  std::shared_ptr<Emulator> emulator_;  // if not
};

// Descriptors of plan/capture_descriptors.h, for memory bound to a graph's slots.
std::vector<std::int64_t> words_of(const std::vector<ConstView>& views);

// Does the last axis of each have stride 1?
std::vector<bool> unit_strides(const std::vector<ConstView>& views);

}  // namespace treadle::test
