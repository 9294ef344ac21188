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

struct Request {
  std::string score = "score";
  std::string mask = "true";
  std::vector<std::string> captures;  // name:dtype:rank
  std::vector<std::string> gradients;
  bool json = false;
  AssemblyRequest assembly;
};

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

Explained explain(const Options& options) {
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

void explain_and_print(const Request& request) {
  const std::vector<Capture> captures = captures_from(request.captures);
  Options options;
  options.score_mod = parse(request.score, captures);
  options.mask = parse(request.mask, captures);
  options.gradients = request.gradients;
  if (request.assembly.wanted) {
    fmt::print("{}", assembly_text(options, request.assembly));
    return;
  }
  const Explained explained = explain(options);
  if (request.json) {
    print_json(explained, captures);
  } else {
    print_text(explained, captures, request.gradients);
  }
}

}  // namespace

void add_explain(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "explain", "What the compiler makes of a score mod and a mask: graphs, derivative, hashes");
  command->footer(
      "Example:\n"
      "  treadle explain \"score + slopes[h] * (kv - q)\" --mask \"q >= kv\" \\\n"
      "      --capture slopes:f32:1 --gradient slopes\n\n"
      "A SCORE that begins with a minus goes last, after --.");
  auto request = std::make_shared<Request>();
  command->add_option(
      "SCORE", request->score,
      "The new score, from score, b, h, q, kv and captures; \"score\" if not given");
  command->add_option(
      "--mask", request->mask,
      "Which pairs see each other, from b, h, q, kv and captures; all if not given");
  // One value each: otherwise an option would swallow the SCORE that follows it.
  command
      ->add_option(
          "--capture", request->captures,
          "A buffer that the mods read, as name:dtype:rank; rank 0 is a number. Repeatable")
      ->allow_extra_args(false);
  command
      ->add_option("--gradient", request->gradients,
                   "The name of a capture whose gradient is wanted. Repeatable")
      ->allow_extra_args(false);
  CLI::Option* json =
      command->add_flag("--json", request->json, "Print a list of {stage, text, hash}");
  CLI::Option* assembly = command->add_flag("--asm", request->assembly.wanted,
                                            "Print the forward kernels as assembly instead");
  assembly->excludes(json);
  command
      ->add_option("--target", request->assembly.target,
                   "The processor that --asm is for; this one if not given")
      ->needs(assembly);
  command->add_option("--dim", request->assembly.dim, "Head dim of the kernels that --asm prints")
      ->check(CLI::Range(1, 4096).description(""))
      ->capture_default_str()
      ->needs(assembly);
  command->callback([request] { explain_and_print(*request); });
}

}  // namespace treadle::cli
