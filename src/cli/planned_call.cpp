// Measures all leaves of a call.
//
// In: a mask, sizes. Out: the work of each pass.
#include "cli/planned_call.h"

#include <chrono>
#include <memory>

#include "api/stages.h"
#include "backend/cpu/make_cpu.h"
#include "base/error.h"
#include "plan/tile_plan.h"

namespace treadle::cli {
namespace {

distributed::PlanCall call_of(const backend::Sizes& sizes, DType dtype) {
  const auto bytes = static_cast<std::int64_t>(size_of(dtype));
  return {.batch = sizes.batch,
          .key_batch = sizes.key_batch,
          .key_heads = sizes.key_heads,
          .per_key_head = sizes.heads / sizes.key_heads,
          .queries = sizes.queries,
          .keys = sizes.keys,
          .dim = sizes.dim,
          .value_dim = sizes.value_dim,
          .query_bytes = bytes,
          .key_bytes = bytes,
          .value_bytes = bytes};
}

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

distributed::Assignment PlannedCall::assign(int ranks,
                                            const distributed::PlanOptions& options) const {
  using distributed::Shards;
  return distributed::assign(call, passes, tiles, Shards::even(call.queries.count(), ranks),
                             Shards::even(call.keys.count(), ranks), options);
}

PlannedCall planned_call(std::string_view name, const MaskMod& mask, const backend::Sizes& sizes,
                         DType dtype, const base::Workers& workers) {
  const Clock::time_point start = Clock::now();
  Options options;
  options.mask = mask;
  const api::Stages made = api::stages_of(options);
  const auto cpu = backend::cpu::make_cpu(made.program, "");
  const backend::Bindings bound{.mask = api::memory_of(made.program.mask.slots(), made.captures)};
  const auto passes = cpu->passes(sizes, bound, workers);
  if (passes == nullptr) base::fail("{}: this backend runs no calls on several machines", name);
  PlannedCall planned{.call = call_of(sizes, dtype)};
  for (std::size_t pass = 0; pass < passes->count(); ++pass) {
    planned.tiles.push_back(passes->tiles(pass));
    planned.call.tiles_per_leaf.push_back(passes->tiles_per_leaf(pass));
    const std::int64_t leaves =
        distributed::leaves_of(planned.tiles.back().count(), planned.call.tiles_per_leaf.back());
    planned.passes.push_back(distributed::work_of(*passes, pass, sizes, leaves, workers));
  }
  planned.measure_ms = ms_since(start);
  return planned;
}

PlannedCall planned_call(const layout::Layout& layout, const backend::Sizes& sizes, DType dtype,
                         const base::Workers& workers) {
  const Clock::time_point start = Clock::now();
  const plan::Target target = plan::host_target();
  const int vectors = plan::vectors_for(target, sizes.compute, layout.tiles().height());
  const std::int64_t per_leaf = plan::tiles_per_leaf(
      plan::plan_tile(target, sizes.compute, sizes.dim, sizes.value_dim, vectors));
  PlannedCall planned{.call = call_of(sizes, dtype), .tiles = {layout.tiles()}};
  planned.call.tiles_per_leaf = {per_leaf};
  planned.passes.push_back(distributed::work_of(layout, per_leaf, sizes.key_heads, workers));
  planned.measure_ms = ms_since(start);
  return planned;
}

}  // namespace treadle::cli
