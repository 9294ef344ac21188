// How much working memory calls of some sizes need.
#include <algorithm>

#include "backend/cpu/cpu.h"
#include "passes/terms.h"
#include "plan/chunks.h"
#include "plan/mod_plan.h"
#include "run/backward.h"
#include "run/forward.h"

namespace treadle::backend::cpu {
plan::ModScratch Cpu::most_scratch(const Sizes& sizes) const {
  const std::int64_t lanes = target_.lanes(sizes.compute);
  plan::ModScratch most = plan::most_scratch_of(forms_.score.graph, lanes);
  most += plan::most_scratch_of(program_.mask, lanes);
  return most;
}

std::int64_t Cpu::forward_scratch(const Sizes& sizes) const {
  const plan::TilePlan plan =
      plan::plan_tile(target_, sizes.compute, sizes.dim, sizes.value_dim, plan::most_vectors);
  return run::forward_scratch(plan, plan::tiles_per_group(plan, true), most_scratch(sizes),
                              passes::may_have_terms(program_.mask));
}

std::int64_t Cpu::backward_scratch(const Sizes& sizes) const {
  const auto contributions = static_cast<std::int64_t>(program_.derivative.contributions.size());
  // Of one chunk, or of several short ones.
  const std::int64_t keys = std::max(plan::longest_chunk(sizes.keys),
                                     std::min(sizes.keys.count(), plan::most_keys_of_chunks));
  plan::ModScratch mods = most_scratch(sizes);
  if (forms_.derives)
    mods += plan::most_scratch_of(program_.derivative.graph, target_.lanes(sizes.compute));
  // Tiles of fewer vectors come in larger groups.
  std::int64_t most = 0;
  for (int vectors = 1; vectors <= plan::most_vectors; ++vectors) {
    const plan::TilePlan plan =
        plan::plan_tile(target_, sizes.compute, sizes.dim, sizes.value_dim, vectors);
    // As many as there would be if every query were a tile.
    const std::int64_t queries = sizes.queries.count() * (sizes.key_batch == 1 ? sizes.batch : 1);
    const std::int64_t leaves = queries / plan::tiles_per_leaf(plan) + sizes.batch;
    most = std::max(most, run::backward_scratch(plan, keys, leaves, contributions, mods));
  }
  return most;
}

}  // namespace treadle::backend::cpu
