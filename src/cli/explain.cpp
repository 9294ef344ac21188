// treadle explain: mods as text in, what each stage makes of them out. Read stages_of first: it is
// src/api/compile.cpp once more, keeping what comes out of every stage.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "cli/assembly.h"
#include "cli/capture_option.h"
#include "cli/commands.h"
#include "cli/table.h"
#include "ir/print.h"
#include "passes/derive.h"
#include "passes/simplify.h"
#include "trace/trace.h"
#include "treadle/attention.h"

namespace treadle::cli {
namespace {

struct Stage {
  std::string name;
  std::string text;
  base::Hash hash;
};

// --- stages
// ---------------------------------------------------------------------------------------

struct Explained {
  std::vector<Stage> stages;
  ir::Graph score_mod, mask;
};

Explained stages_of(const Options& options) {
  compile(options);  // checks everything that a call would, and heeds TREADLE_DUMP

  Explained done;
  const auto show = [&](std::string name, const ir::Graph& graph) {
    done.stages.push_back({std::move(name), ir::to_text(graph), graph.hash()});
  };
  auto table = std::make_shared<trace::CaptureTable>();
  done.score_mod = trace::trace(options.score_mod, table);
  show("score mod, traced", done.score_mod);
  const ir::Graph simple_score = passes::simplify(done.score_mod);
  show("score mod, simplified", simple_score);
  done.mask = trace::trace(options.mask, table);
  show("mask, traced", done.mask);
  show("mask, simplified", passes::simplify(done.mask));
  const ir::Joint joint = passes::derive(simple_score, options.gradients);
  done.stages.push_back({"derivative", ir::to_text(joint), joint.graph.hash()});
  for (Stage& stage : done.stages) stage.text.erase(stage.text.find_last_not_of('\n') + 1);
  return done;
}

std::string readers_of(const std::string& name, const Explained& explained) {
  const bool score_mod = explained.score_mod.find_slot(name) != nullptr;
  const bool mask = explained.mask.find_slot(name) != nullptr;
  if (score_mod && mask) return "score mod, mask";
  return score_mod ? "score mod" : mask ? "mask" : "nobody";
}

// --- printing
// -------------------------------------------------------------------------------------

void print_json(const Explained& explained, const std::vector<Capture>& captures) {
  Table table({"stage", "text", "hash"});
  for (const Stage& stage : explained.stages) {
    table.add({stage.name, stage.text, to_string(stage.hash)});
  }
  for (const Capture& capture : captures) {
    table.add({"capture",
               fmt::format("{}:{}:{}", capture.name(), name_of(capture.view().dtype()),
                           capture.view().rank()),
               Cell()});
  }
  print(table, Format::json);
}

void print_indented(std::string_view title, std::string_view text) {
  fmt::print("{}\n", title);
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    fmt::print("  {}\n", text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  fmt::print("\n");
}

void print_text(const Explained& explained, const std::vector<Capture>& captures,
                const std::vector<std::string>& gradients) {
  Table hashes({"graph", "hash"});
  for (const Stage& stage : explained.stages) {
    print_indented(stage.name, stage.text);
    hashes.add({stage.name, to_string(stage.hash)});
  }
  fmt::print("{}", hashes.to_text());
  if (captures.empty()) return;

  Table table({"capture", "dtype", "rank", "read by", "gradient"});
  for (const Capture& capture : captures) {
    table.add({capture.name(), name_of(capture.view().dtype()), capture.view().rank(),
               readers_of(capture.name(), explained),
               std::ranges::count(gradients, capture.name()) > 0});
  }
  fmt::print("\n{}", table.to_text());
}

}  // namespace

void explain(const ExplainRequest& request) {
  const std::vector<Capture> captures = captures_from(request.captures);
  Options options;
  options.score_mod = parse(request.score, captures);
  options.mask = parse(request.mask, captures);
  options.gradients = request.gradients;
  if (request.assembly.wanted) {
    fmt::print("{}", assembly_text(options, request.assembly));
    return;
  }
  const Explained explained = stages_of(options);
  if (request.json) {
    print_json(explained, captures);
  } else {
    print_text(explained, captures, request.gradients);
  }
}

}  // namespace treadle::cli
