// compile(), stage by stage: the first table of contents. backend/cpu/call.cpp is the second.
//
//   your functions -trace-> graphs -simplify-> graphs -derive-> joint graph -> a backend
//
// Kernels depend on types and head dims, which a call brings: they are compiled there. Each stage
// is a free function in the folder of that name. TREADLE_DUMP=graph prints what each made.
#include <algorithm>
#include <cmath>

#include "api/backends.h"
#include "api/compiled.h"
#include "api/stages.h"
#include "base/compute_type.h"
#include "base/dump.h"
#include "base/error.h"
#include "ir/print.h"
#include "passes/derive.h"
#include "passes/simplify.h"
#include "trace/trace.h"
#include "treadle/attention.h"

namespace treadle {
namespace {

void check_scale(const Options& options) {
  if (options.scale && !std::isfinite(*options.scale)) {
    base::fail("compile: the scale is {}; it must be finite", *options.scale);
  }
}

// Compile time, and the size of kernels, grow with the number of nodes.
void check_size(std::string_view what, const ir::Graph& graph, const Options& options) {
  if (graph.size() > options.most_nodes) {
    base::fail("compile: the {} has {} nodes; Options::most_nodes allows {}", what, graph.size(),
               options.most_nodes);
  }
}

// Each name once, and known. derive checks that the score mod reads it and that it holds floats.
void check_gradients(const Options& options, const ir::Graph& score_mod, const ir::Graph& mask) {
  for (std::size_t i = 0; i < options.gradients.size(); ++i) {
    const std::string& name = options.gradients[i];
    const auto rest = options.gradients.begin() + static_cast<std::ptrdiff_t>(i) + 1;
    if (std::find(rest, options.gradients.end(), name) != options.gradients.end()) {
      base::fail("compile: gradients names \"{}\" twice", name);
    }
    if (score_mod.find_slot(name) == nullptr && mask.find_slot(name) != nullptr) {
      base::fail(
          "compile: gradients names \"{}\", which only the mask reads; a mask has no gradient",
          name);
    }
  }
}

// Names of captures that the score mod still reads. Simplification may have dropped one,
// where(false, table[h], score); its gradient is zero, which is no mistake. What the mod never
// read, or what holds no floats, is left for derive to refuse.
std::vector<std::string> still_read(const std::vector<std::string>& names, const ir::Graph& traced,
                                    const ir::Graph& simplified) {
  std::vector<std::string> kept;
  for (const std::string& name : names) {
    const ir::Slot* slot = traced.find_slot(name);
    const bool dropped = slot != nullptr && base::holds_gradients(slot->dtype) &&
                         simplified.find_slot(name) == nullptr;
    if (!dropped) kept.push_back(name);
  }
  return kept;
}

// A stage's result, for those who ask to see it.
void show(std::string_view title, const auto& result) {
  if (base::dump_wanted(base::Dump::graph))
    base::dump(base::Dump::graph, title, ir::to_text(result));
}

}  // namespace

api::Stages api::stages_of(const Options& options) {
  check_scale(options);
  Stages made;
  auto captures = std::make_shared<trace::CaptureTable>();
  made.traced_score = trace::trace(options.score_mod, captures);
  made.traced_mask = trace::trace(options.mask, captures);
  check_size("score mod", made.traced_score, options);
  check_size("mask", made.traced_mask, options);
  check_gradients(options, made.traced_score, made.traced_mask);
  show("score mod, traced", made.traced_score);
  show("mask, traced", made.traced_mask);

  backend::Program& program = made.program;
  program.score_mod = passes::simplify(made.traced_score);
  program.mask = passes::simplify(made.traced_mask);
  show("score mod, simplified", program.score_mod);
  show("mask, simplified", program.mask);

  program.derivative = passes::derive(
      program.score_mod, still_read(options.gradients, made.traced_score, program.score_mod));
  check_size("derivative of the score mod", program.derivative.graph, options);
  show("derivative", program.derivative);

  made.captures = captures->captures();
  return made;
}

Attention compile(const Options& options) {
  api::Stages made = api::stages_of(options);
  auto compiled = std::make_shared<Attention::Compiled>();
  compiled->backend = api::make_backend(made.program, options);
  compiled->program = std::move(made.program);
  compiled->mask = compiled->program.mask.hash();
  compiled->captures = std::move(made.captures);
  compiled->gradients = options.gradients;
  compiled->scale = options.scale;
  compiled->save = options.save;
  return Attention(std::move(compiled));
}

Forward attention(const Inputs& inputs, const Options& options, const Call& call) {
  return compile(options).forward(inputs, call);
}

}  // namespace treadle
