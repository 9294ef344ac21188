// The table of contents: one call per stage, in the order in which data goes through them.
//
//   your functions -trace-> Graph -simplify-> Graph -derive-> joint graph -plan-> Cpu -> Attention
//
// Kernels depend on types and head dims, which a call brings: api/cpu.cpp goes on from here.
// Each stage is a free function in the folder of that name. TREADLE_DUMP=graph prints what each
// made.
#include <algorithm>
#include <cmath>

#include "api/compiled.h"
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
    const bool dropped =
        slot != nullptr && is_float(slot->dtype) && simplified.find_slot(name) == nullptr;
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

Attention compile(const Options& options) {
  check_scale(options);

  auto captures = std::make_shared<trace::CaptureTable>();
  const ir::Graph traced_score = trace::trace(options.score_mod, captures);
  const ir::Graph traced_mask = trace::trace(options.mask, captures);
  check_gradients(options, traced_score, traced_mask);
  show("score mod, traced", traced_score);
  show("mask, traced", traced_mask);

  auto compiled = std::make_shared<Attention::Compiled>();
  compiled->score_mod = passes::simplify(traced_score);
  compiled->mask = passes::simplify(traced_mask);
  show("score mod, simplified", compiled->score_mod);
  show("mask, simplified", compiled->mask);

  compiled->joint = passes::derive(
      compiled->score_mod, still_read(options.gradients, traced_score, compiled->score_mod));
  show("derivative", compiled->joint);

  compiled->captures = captures->captures();
  compiled->gradients = options.gradients;
  compiled->scale = options.scale;
  compiled->save = options.save;
  compiled->backend = options.backend;
  if (options.backend == Backend::cpu) {
    compiled->cpu = std::make_unique<api::Cpu>(compiled->score_mod, compiled->joint, compiled->mask,
                                               options.target);
  }
  return Attention(std::move(compiled));
}

Forward attention(const Inputs& inputs, const Options& options, const Call& call) {
  return compile(options).forward(inputs, call);
}

}  // namespace treadle
