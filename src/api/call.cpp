// Defaults and captures of a call.
#include "api/call.h"

#include <algorithm>
#include <cmath>

#include "api/stages.h"
#include "base/error.h"

namespace treadle::api {
namespace {

void find_views(std::span<const ir::Slot> slots, const std::vector<const Capture*>& bound,
                std::vector<ConstView>& views) {
  views.clear();
  views.reserve(slots.size());
  for (const ir::Slot& slot : slots) {
    const auto found = std::ranges::find_if(
        bound, [&](const Capture* capture) { return capture->name() == slot.name; });
    if (found == bound.end()) base::internal_error("no capture for slot {}", slot.name);
    views.push_back((*found)->view());
  }
}

}  // namespace

std::vector<ConstView> memory_of(std::span<const ir::Slot> slots,
                                 const std::vector<Capture>& captures) {
  std::vector<const Capture*> bound;
  for (const Capture& capture : captures) bound.push_back(&capture);
  std::vector<ConstView> views;
  find_views(slots, bound, views);
  return views;
}

backend::Bindings bindings_of(const backend::Program& program,
                              const std::vector<const Capture*>& bound) {
  backend::Bindings bindings;
  find_bindings(program, bound, bindings);
  return bindings;
}

void find_bindings(const backend::Program& program, const std::vector<const Capture*>& bound,
                   backend::Bindings& bindings) {
  find_views(program.score_mod.slots(), bound, bindings.score_mod);
  find_views(program.mask.slots(), bound, bindings.mask);
  find_views(program.derivative.graph.slots(), bound, bindings.derivative);
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
