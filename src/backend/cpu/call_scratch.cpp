// How much working memory calls of some sizes need.
#include <algorithm>
#include <limits>

#include "backend/cpu/cpu.h"
#include "passes/terms.h"
#include "plan/chunks.h"
#include "plan/decode_kernel.h"
#include "plan/mod_plan.h"
#include "plan/schedule.h"
#include "run/backward.h"
#include "run/decode.h"
#include "run/forward.h"

namespace treadle::backend::cpu {
namespace {

// The queries of all heads; as many as there are numbers for, if they are more.
std::int64_t rows_of(const Sizes& sizes) {
  std::int64_t heads = 0, rows = 0;
  const bool over = __builtin_mul_overflow(sizes.batch, sizes.heads, &heads) ||
                    __builtin_mul_overflow(heads, sizes.queries.count(), &rows);
  return over ? std::numeric_limits<std::int64_t>::max() : rows;
}

}  // namespace

plan::ModScratch Cpu::most_scratch(const Sizes& sizes) const {
  const std::int64_t lanes = target_.lanes(sizes.compute);
  plan::ModScratch most = plan::most_scratch_of(forms_.score.graph, lanes);
  most += plan::most_scratch_of(program_.mask, lanes);
  return most;
}

// The general way: a group of tiles at work, and chunks of tasks that are cut.
std::int64_t Cpu::forward_scratch(const Sizes& sizes) const {
  const plan::TilePlan plan =
      plan::plan_tile(target_, sizes.compute, sizes.dim, sizes.value_dim, plan::most_vectors);
  const bool joins = passes::may_have_terms(program_.mask);
  const std::int64_t group = plan::tiles_per_group(plan, true);
  // As many as there would be if every query were a tile.
  const std::int64_t tiles = std::min(plan::pieces_per_thread * group, rows_of(sizes));
  return std::max(run::forward_scratch(plan, static_cast<int>(group), most_scratch(sizes), joins) +
                      run::forward_cut_bytes(plan, tiles, plan::chunks_of(sizes.keys).count()),
                  decode_scratch(sizes));
}

std::int64_t Cpu::decode_scratch(const Sizes& sizes) const {
  if (sizes.key_heads == 0 || !are_few(sizes)) return 0;
  const std::int64_t rows = sizes.heads / sizes.key_heads * sizes.queries.count();
  if (rows == 0 || rows > plan::most_decode_rows) return 0;
  const std::int64_t lanes = target_.lanes(sizes.compute);
  std::int64_t most = 0;
  // Keys of fewer bytes come in larger blocks.
  for (const DType type : {DType::i8, DType::bf16, DType::f32, sizes.compute}) {
    run::DecodeKernels kernels;
    kernels.spec.target = target_;
    kernels.spec.compute = kernels.spec.value_type = sizes.compute;
    kernels.spec.key_type = type;
    kernels.spec.dim = sizes.dim;
    kernels.spec.value_dim = sizes.value_dim;
    kernels.spec.key_block =
        plan::decode_block(target_, sizes.compute, type, sizes.dim, plan::RowBlocks(rows));
    for (const ir::Graph* mod : {&forms_.turned_score.graph, &forms_.turned_mask})
      kernels.frame += plan::most_scratch_of(*mod, lanes).frame;
    most = std::max(most,
                    run::decode_scratch(kernels, {.rows = rows,
                                                  .lists = sizes.batch * sizes.key_heads,
                                                  .chunks = plan::chunks_of(sizes.keys).count()}));
  }
  return most;
}

std::int64_t Cpu::forward_kept(const Sizes& sizes) const {
  if (!passes::may_have_terms(program_.mask)) return 0;
  return run::forward_row_bytes(sizes.compute, rows_of(sizes), sizes.value_dim);
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
