// Takes a mask through the stages of compile().
//
// In: a MaskMod. Out: its simplified graph, and captures in the order of the graph's slots.
#include "cli/traced_mask.h"

#include "api/stages.h"

namespace treadle::cli {

TracedMask traced(const MaskMod& mask) {
  Options options;
  options.mask = mask;
  api::Stages made = api::stages_of(options);
  TracedMask result;
  result.mask.graph = std::move(made.program.mask);
  result.captures = std::move(made.captures);
  result.mask.memory = api::memory_of(result.mask.graph.slots(), result.captures);
  return result;
}

}  // namespace treadle::cli
