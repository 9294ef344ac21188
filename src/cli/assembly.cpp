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

std::string assembly_text(const Options& options, const AssemblyRequest& request,
                          const plan::Target& target) {
  const backend::Program program = api::stages_of(options).program;
  const backend::cpu::Forms forms = backend::cpu::forms_of(program);
  const backend::cpu::ForwardKind kind{.target = target,
                                       .dim = request.dim,
                                       .value_dim = request.dim,
                                       .score_facts = ordinary(forms.score.graph),
                                       .mask_facts = ordinary(program.mask)};
  const auto spec = [&](bool masked) {
    return backend::cpu::forward_spec(program, forms, kind, {.masked = masked});
  };
  std::string text = fmt::format("# {}\n# {}\n\n# where every pair is visible\n",
                                 to_text(kind.target), to_text(spec(false).plan));
  text += jit::assembly_of(spec(false));
  if (forms.sees_all || program.mask[program.mask.output()].op == ir::Op::constant) return text;
  return text + "\n# where the mask decides\n" + jit::assembly_of(spec(true));
}

}  // namespace treadle::cli
