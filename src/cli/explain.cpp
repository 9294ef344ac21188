// treadle explain: mods as text in, what each stage of compile() makes of them out.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "api/stages.h"
#include "base/hash.h"
#include "cli/assembly.h"
#include "cli/capture_option.h"
#include "cli/commands.h"
#include "cli/table.h"
#include "ir/print.h"
#include "treadle/attention.h"

namespace treadle::cli {
namespace {

struct Stage {
  std::string name;
  std::string text;
  base::Hash hash;
};

struct Explained {
  std::vector<Stage> stages;
  api::Stages made;
};

Explained explained(const Options& options) {
  Explained done{.stages = {}, .made = api::stages_of(options)};
  const auto show = [&](std::string name, const ir::Graph& graph) {
    done.stages.push_back({std::move(name), ir::to_text(graph), graph.hash()});
  };
  show("score mod, traced", done.made.traced_score);
  show("score mod, simplified", done.made.program.score_mod);
  show("mask, traced", done.made.traced_mask);
  show("mask, simplified", done.made.program.mask);
  const ir::Joint& derivative = done.made.program.derivative;
  done.stages.push_back({"derivative", ir::to_text(derivative), derivative.graph.hash()});
  for (Stage& stage : done.stages) stage.text.erase(stage.text.find_last_not_of('\n') + 1);
  return done;
}

std::string readers_of(const std::string& name, const Explained& explained) {
  const bool score_mod = explained.made.traced_score.find_slot(name) != nullptr;
  const bool mask = explained.made.traced_mask.find_slot(name) != nullptr;
  if (score_mod && mask) return "score mod, mask";
  return score_mod ? "score mod" : mask ? "mask" : "nobody";
}

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
  const Explained done = explained(options);
  if (request.json) {
    print_json(done, captures);
  } else {
    print_text(done, captures, request.gradients);
  }
}

}  // namespace treadle::cli
