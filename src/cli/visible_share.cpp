// Evaluates the mask's graph row by row.
#include "cli/visible_share.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <vector>

#include "base/parallel.h"
#include "ir/interpret.h"
#include "passes/simplify.h"
#include "trace/trace.h"

namespace treadle::cli {
namespace {

// The captures' memory in the order of the graph's slots.
std::vector<ConstView> memory_of(const ir::Graph& graph, const trace::CaptureTable& table) {
  std::vector<ConstView> memory;
  for (const ir::Slot& slot : graph.slots()) {
    memory.push_back(std::ranges::find(table.captures(), slot.name, &Capture::name)->view());
  }
  return memory;
}

}  // namespace

double visible_share(const MaskMod& mask, const Sizes& sizes, Executor& executor) {
  const auto table = std::make_shared<trace::CaptureTable>();
  const ir::Graph graph = passes::simplify(trace::trace(mask, table));
  const std::vector<ConstView> memory = memory_of(graph, *table);
  // What a mask does not mention cannot change it.
  const std::int64_t batches = graph.uses(ir::Input::b) ? sizes.batch : 1;
  const std::int64_t heads = graph.uses(ir::Input::h) ? sizes.heads : 1;
  std::vector<std::int64_t> keys(static_cast<std::size_t>(sizes.keys));
  std::iota(keys.begin(), keys.end(), 0);

  std::atomic<std::int64_t> visible = 0;
  base::parallel_for(executor, batches * heads, [&](std::int64_t task) {
    ir::Interpreter<double> evaluate(graph, memory);
    const std::int64_t b = task / heads;
    const std::int64_t h = task % heads;
    for (std::int64_t q = 0; q < sizes.queries; ++q) {
      evaluate({.score = {}, .grad = {}, .b = {&b, 1}, .h = {&h, 1}, .q = {&q, 1}, .kv = keys},
               sizes.keys);
      visible += std::ranges::count_if(evaluate.booleans(0), [](auto seen) { return seen != 0; });
    }
  });
  const std::int64_t pairs = batches * heads * sizes.queries * sizes.keys;
  return static_cast<double>(visible) / static_cast<double>(pairs);
}

}  // namespace treadle::cli
