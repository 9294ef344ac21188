// Traces, simplifies, and puts the captures in the order of the graph's slots.
#include "cli/traced_mask.h"

#include <algorithm>
#include <memory>

#include "passes/simplify.h"
#include "trace/trace.h"

namespace treadle::cli {

TracedMask traced(const MaskMod& mask) {
  const auto table = std::make_shared<trace::CaptureTable>();
  TracedMask result;
  result.mask.graph = passes::simplify(trace::trace(mask, table));
  result.captures = table->captures();
  for (const ir::Slot& slot : result.mask.graph.slots()) {
    result.mask.memory.push_back(
        std::ranges::find(result.captures, slot.name, &Capture::name)->view());
  }
  return result;
}

}  // namespace treadle::cli
