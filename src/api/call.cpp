// Defaults and captures of a call.
#include "api/call.h"

#include <algorithm>
#include <cmath>

#include "api/stages.h"
#include "base/error.h"

namespace treadle::api {
namespace {

std::vector<ConstView> views_of(std::span<const ir::Slot> slots,
                                const std::vector<const Capture*>& bound) {
  std::vector<ConstView> views;
  views.reserve(slots.size());
  for (const ir::Slot& slot : slots) {
    const auto found = std::ranges::find_if(
        bound, [&](const Capture* capture) { return capture->name() == slot.name; });
    if (found == bound.end()) base::internal_error("no capture for slot {}", slot.name);
    views.push_back((*found)->view());
  }
  return views;
}

}  // namespace

std::vector<ConstView> memory_of(std::span<const ir::Slot> slots,
                                 const std::vector<Capture>& captures) {
  std::vector<const Capture*> bound;
  for (const Capture& capture : captures) bound.push_back(&capture);
  return views_of(slots, bound);
}

backend::Bindings bindings_of(const backend::Program& program,
                              const std::vector<const Capture*>& bound) {
  return {.score_mod = views_of(program.score_mod.slots(), bound),
          .mask = views_of(program.mask.slots(), bound),
          .derivative = views_of(program.derivative.graph.slots(), bound)};
}

base::Workers workers_of(std::string_view name, const Call& call) {
  static const auto* shared = new std::shared_ptr<Executor>(tbb_executor());
  if (!call.executor) return {**shared, call.stop};
  if (const int threads = call.executor->threads(); threads < 1)
    base::fail("{}: the executor says that it has {} threads; it must have at least 1", name,
               threads);
  return {*call.executor, call.stop};
}

double scale_of(const Attention::Compiled& compiled, std::int64_t dim) {
  return compiled.scale.value_or(1.0 / std::sqrt(static_cast<double>(dim)));
}

}  // namespace treadle::api
