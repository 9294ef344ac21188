#include "cli/assembly.h"

#include <fmt/format.h>

#include <memory>

#include "jit/engine.h"
#include "passes/simplify.h"
#include "trace/trace.h"

namespace treadle::cli {
namespace {

plan::ModFacts ordinary(const ir::Graph& graph) {
  return {.narrow = true,
          .checked = false,
          .consecutive = true,
          .unit_stride = std::vector<bool>(graph.slots().size(), true)};
}

}  // namespace

std::string assembly_text(const Options& options, const AssemblyRequest& request) {
  const plan::Target target =
      request.target.empty() ? plan::host_target() : plan::find_target(request.target);
  auto captures = std::make_shared<trace::CaptureTable>();
  plan::ForwardKernelSpec spec;
  spec.plan = plan::plan_tile(target, DType::f32, request.dim, request.dim, plan::most_vectors);
  spec.score = plan::score_form(passes::simplify(trace::trace(options.score_mod, captures)));
  spec.score_facts = ordinary(spec.score.graph);
  const ir::Graph mask = passes::simplify(trace::trace(options.mask, captures));

  std::string text = fmt::format("# {}\n# {}\n\n# where every pair is visible\n", to_text(target),
                                 to_text(spec.plan));
  text += jit::assembly_of(plan::KernelSpec(spec));
  if (mask[mask.output()].op == ir::Op::constant) return text;
  spec.masked = true;
  spec.mask = mask;
  spec.mask_facts = ordinary(mask);
  return text + "\n# where the mask decides\n" + jit::assembly_of(plan::KernelSpec(spec));
}

}  // namespace treadle::cli
