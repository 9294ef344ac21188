// The kernels that an ordinary forward call would run, as assembly.
#include "cli/assembly.h"

#include <fmt/format.h>

#include "api/stages.h"
#include "backend/cpu/kernel_sets.h"
#include "jit/engine.h"

namespace treadle::cli {
namespace {

// Reads stay inside, and queries come in their own order.
plan::ModFacts ordinary(const ir::Graph& graph) {
  return {.narrow = true,
          .reads = plan::Reads::proven,
          .consecutive = true,
          .unit_stride = std::vector<bool>(graph.slots().size(), true)};
}

}  // namespace

std::vector<NamedKernel> ordinary_kernels(const Options& options, std::int64_t dim,
                                          const plan::Target& target) {
  const backend::Program program = api::stages_of(options).program;
  const backend::cpu::Forms forms = backend::cpu::forms_of(program);
  const backend::cpu::ForwardKind kind{.target = target,
                                       .dim = dim,
                                       .value_dim = dim,
                                       .score_facts = ordinary(forms.score.graph),
                                       .mask_facts = ordinary(program.mask)};
  const auto spec = [&](bool masked) {
    return backend::cpu::forward_spec(program, forms, kind, {.masked = masked});
  };
  std::vector<NamedKernel> kernels{{"where every pair is visible", spec(false)}};
  if (forms.sees_all || program.mask[program.mask.output()].op == ir::Op::constant) return kernels;
  kernels.push_back({"where the mask decides", spec(true)});
  return kernels;
}

std::string assembly_text(const Options& options, const AssemblyRequest& request,
                          const plan::Target& target) {
  std::string text;
  for (const NamedKernel& kernel : ordinary_kernels(options, request.dim, target)) {
    text +=
        text.empty() ? fmt::format("# {}\n# {}\n", to_text(target), to_text(kernel.spec.plan)) : "";
    text += fmt::format("\n# {}\n{}", kernel.name, jit::assembly_of(kernel.spec));
  }
  return text;
}

}  // namespace treadle::cli
