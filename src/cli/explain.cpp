// treadle explain: mods as text in, what each stage of compile() makes of them out.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "api/stages.h"
#include "backend/cpu/mask_passes.h"
#include "base/error.h"
#include "base/hash.h"
#include "cli/assembly.h"
#include "cli/capture_values.h"
#include "cli/commands.h"
#include "cli/explain_page.h"
#include "cli/table.h"
#include "ir/print.h"
#include "jit/engine.h"
#include "layout/choice_text.h"
#include "picture/picture.h"
#include "plan/tile_plan.h"
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
  backend::cpu::ChosenPasses passes;  // if a length is given
};

// Captures of the mask that the command line gave no values, all of them or scalars.
std::vector<std::string> without_values(const ExplainRequest& request, const ir::Graph& mask,
                                        bool only_scalars) {
  std::vector<std::string> names;
  for (const ir::Slot& slot : mask.slots()) {
    const bool valued = std::ranges::any_of(request.captures, [&](const std::string& text) {
      return text.starts_with(slot.name + ':') && text.find('=') != std::string::npos;
    });
    if (!valued && (slot.rank == 0 || !only_scalars)) names.push_back(slot.name);
  }
  return names;
}

plan::Target target_of(const ExplainRequest& request) {
  return request.target.empty() ? plan::host_target() : plan::find_target(request.target);
}

backend::cpu::ChosenPasses chosen_passes(const ExplainRequest& request, const layout::Mask& mask,
                                         const backend::MaskTerms& terms) {
  if (request.queries == 0) return {};
  const auto unknown = without_values(request, mask.graph, false);
  if (!unknown.empty()) {
    base::fail(
        "explain: with --q the tiles follow from what {0} holds; give it values, as in "
        "--capture {0}:i32=0*512,1*512",
        unknown.front());
  }
  const layout::Extent extent{.queries = request.queries,
                              .keys = request.keys == 0 ? request.queries : request.keys};
  backend::cpu::KeptChoices kept;
  const std::shared_ptr<Executor> executor = tbb_executor();
  return choose_passes(mask, terms, extent, plan::tile_weights(target_of(request), DType::f32),
                       kept, *executor);
}

Explained explained(const Options& options, const ExplainRequest& request) {
  Explained done{.stages = {}, .made = api::stages_of(options), .passes = {}};
  const auto show = [&](std::string name, const ir::Graph& graph) {
    done.stages.push_back({std::move(name), ir::to_text(graph), graph.hash()});
  };
  show("score mod, traced", done.made.traced_score);
  show("score mod, simplified", done.made.program.score_mod);
  show("mask, traced", done.made.traced_mask);
  show("mask, simplified", done.made.program.mask);
  const layout::Mask mask{done.made.program.mask,
                          api::memory_of(done.made.program.mask.slots(), done.made.captures)};
  // Which terms there are depends on the numbers that scalars hold.
  if (request.queries != 0 || without_values(request, mask.graph, true).empty()) {
    const backend::MaskTerms terms = backend::terms_of(mask.graph, mask.memory);
    for (std::size_t i = 0; i < terms.size(); ++i)
      show(fmt::format("mask, term {} of {}", i + 1, terms.size()), terms[i]->mask);
    done.passes = chosen_passes(request, mask, terms);
  }
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
  Table table({"stage", "text", "hash", "term", "pass", "order", "tile", "cost", "columns", "tiles",
               "runs", "pieces", "estimated", "taken", "apart"});
  const auto add = [&](std::vector<Cell> row) {
    row.resize(15);
    table.add(std::move(row));
  };
  for (const Stage& stage : explained.stages) add({stage.name, stage.text, to_string(stage.hash)});
  const auto number = [](double x) { return Cell(x, fmt::format("{:.0f}", x)); };
  const backend::cpu::ChosenPasses& passes = explained.passes;
  for (std::size_t i = 0; i < passes.terms.size(); ++i) {
    const backend::cpu::ChosenTerm& term = passes.terms[i];
    for (const layout::Choice& choice : term.chosen->candidates) {
      const layout::Work& work = choice.work;
      add({"candidate", name_of(choice), Cell(), i + 1, term.pass + 1, to_text(choice.order),
           choice.height, number(choice.cost), number(work.columns), number(work.tiles),
           number(work.runs), number(work.pieces), choice.estimated,
           name_of(choice) == name_of(term.choice)});
    }
  }
  for (std::size_t i = 0; i < passes.costs.size(); ++i) {
    std::vector<Cell> row(15);
    row[0] = "pass";
    row[1] = fmt::format("pass {} of {}", i + 1, passes.costs.size());
    row[4] = i + 1;
    row[7] = number(passes.costs[i].cost);
    row[14] = number(passes.costs[i].apart);
    add(std::move(row));
  }
  for (const Capture& capture : captures) {
    add({"capture", fmt::format("{}:{}:{}", capture.name(), name_of(capture.view().dtype()),
                                capture.view().rank())});
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

// Mods as they were given.
std::string given_text(const ExplainRequest& request) {
  return fmt::format("score: {}\nmask:  {}", request.score, request.mask);
}

// Of the first batch and head, as `treadle mask` draws it.
Section layout_section(const ExplainRequest& request, const Explained& explained) {
  const std::int64_t keys = request.keys == 0 ? request.queries : request.keys;
  const layout::Extent extent{.queries = request.queries, .keys = keys};
  const ir::Graph& graph = explained.made.program.mask;
  const layout::Mask mask{graph, api::memory_of(graph.slots(), explained.made.captures)};
  const std::shared_ptr<Executor> executor = tbb_executor();
  const picture::Picture small =
      draw(mask, extent, 0, 0, picture::terminal_grid(extent), *executor);
  picture::Picture large = draw(mask, extent, 0, 0, picture::image_grid(extent), *executor);
  large.title = request.mask;
  return {fmt::format("layout of {} queries x {} keys, batch 0, head 0", request.queries, keys),
          to_terminal(small) + terminal_legend(small), to_svg(large)};
}

Section kernel_section(const Options& options, const ExplainRequest& request) {
  const plan::Target target = target_of(request);
  Table table({"forward kernel", "bytes", "spills", "reloads", "ms to compile"});
  const std::vector<NamedKernel> kernels = ordinary_kernels(options, request.assembly.dim, target);
  const std::string head =
      fmt::format("{}\n{}\n\n", to_text(target), to_text(kernels.front().spec.plan));
  for (const NamedKernel& kernel : kernels) {
    const jit::CodeFacts facts = jit::facts_of(kernel.spec);
    table.add({kernel.name, facts.bytes, facts.spills, facts.reloads,
               Cell(facts.ms, fmt::format("{:.1f}", facts.ms))});
  }
  return {"kernels", head + table.to_text()};
}

std::string captures_text(const Explained& explained, const std::vector<Capture>& captures,
                          const std::vector<std::string>& gradients) {
  Table table({"capture", "dtype", "rank", "read by", "gradient"});
  for (const Capture& capture : captures) {
    table.add({capture.name(), name_of(capture.view().dtype()), capture.view().rank(),
               readers_of(capture.name(), explained),
               std::ranges::count(gradients, capture.name()) > 0});
  }
  return table.to_text();
}

std::string hashes_text(const Explained& explained) {
  Table hashes({"graph", "hash"});
  for (const Stage& stage : explained.stages) hashes.add({stage.name, to_string(stage.hash)});
  return hashes.to_text();
}

// All stages in their order; what a length or kernels are needed for only if they are asked for.
std::vector<Section> sections_of(const Options& options, const ExplainRequest& request,
                                 const Explained& explained) {
  std::vector<Section> sections;
  for (const Stage& stage : explained.stages) sections.push_back({stage.name, stage.text});
  if (request.queries != 0) sections.push_back(layout_section(request, explained));
  for (std::size_t i = 0; i < explained.passes.terms.size(); ++i)
    sections.push_back({title_of(explained.passes, i), text_of(explained.passes, i)});
  if (request.kernels || !request.html.empty())
    sections.push_back(kernel_section(options, request));
  return sections;
}

void print_text(const std::vector<Section>& sections, const Explained& explained,
                const std::vector<Capture>& captures, const std::vector<std::string>& gradients) {
  for (const Section& section : sections) print_indented(section.title, section.text);
  fmt::print("{}", hashes_text(explained));
  if (!captures.empty()) fmt::print("\n{}", captures_text(explained, captures, gradients));
}

void write_html(const ExplainRequest& request, std::vector<Section> sections,
                const Explained& explained, const std::vector<Capture>& captures) {
  sections.insert(sections.begin(), {"given", given_text(request)});
  if (!captures.empty())
    sections.push_back({"captures", captures_text(explained, captures, request.gradients)});
  sections.push_back({"hashes", hashes_text(explained)});
  write_page(request.html, fmt::format("{} where {}", request.score, request.mask), sections);
}

}  // namespace

void explain(const ExplainRequest& request) {
  const bool kernels = request.kernels || !request.html.empty();
  if (!request.target.empty() && !request.assembly.wanted && !kernels && request.queries == 0) {
    base::fail("explain: --target \"{}\" is given without --asm, --q or --kernels, which it is for",
               request.target);
  }
  const std::vector<Capture> captures = captures_perhaps_with_values("explain", request.captures);
  Options options;
  options.score_mod = parse(request.score, captures);
  options.mask = parse(request.mask, captures);
  options.gradients = request.gradients;
  if (request.assembly.wanted) {
    fmt::print("{}", assembly_text(options, request.assembly, target_of(request)));
    return;
  }
  const Explained done = explained(options, request);
  if (request.json) return print_json(done, captures);
  const std::vector<Section> sections = sections_of(options, request, done);
  if (!request.html.empty()) return write_html(request, sections, done, captures);
  print_text(sections, done, captures, request.gradients);
}

}  // namespace treadle::cli
