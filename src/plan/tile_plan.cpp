// Sizes of tiles and blocks from the target's registers and caches.
//
// In: a target, types and head dims. Out: numbers that every emitter and worker follows.
#include "plan/tile_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace treadle::plan {
namespace {

// Accumulators that fit beside a vector of B per column and one broadcast of A. Of 32 registers 24
// are taken: more and the scheduler spills (loads are hoisted over them).
int accumulators(const Target& target) {
  if (!target.fma) return 9;  // a product needs a register of its own before it is added
  return target.registers >= 32 ? 24 : 12;
}

}  // namespace

TilePlan plan_tile(const Target& target, DType compute, std::int64_t dim, std::int64_t value_dim,
                   int vectors) {
  TilePlan plan{.target = target,
                .compute = compute,
                .dim = dim,
                .value_dim = value_dim,
                .vectors = vectors,
                .keys = {.element = compute}};
  // A tile of one vector is bound by loads, and more rows do not help it.
  plan.rows = vectors == 1 ? accumulators(target) * 2 / 3 : accumulators(target) / vectors;
  // Keys, values and scores of a block are to stay in the second cache with room for the tiles.
  const std::int64_t row_bytes = (dim + value_dim) * static_cast<std::int64_t>(size_of(compute));
  plan.key_block = row_bytes <= 1024 ? 128 : row_bytes <= 2560 ? 64 : 32;
  return plan;
}

int most_in_few(const TilePlan& plan) {
  // Multiply-adds take four cycles or five; one starts each cycle, or two, so that sums that are
  // fewer than this wait for themselves.
  const int sums = plan.target.half_wide ? 4 : 8;
  const int slower = std::max(1, sums / (few_keys * plan.vectors));
  return few_keys * ((plan.rows - 1) / (few_keys * slower));
}

bool is_sparse(const layout::Layout& layout) {
  constexpr std::int64_t short_sequence = 1024;
  constexpr double short_runs = 192;
  return layout.extent().keys.count() > short_sequence &&
         (layout.has_steps() || layout.keys_per_run() < short_runs);
}

int tiles_per_group(const TilePlan& plan, bool copies_keys) {
  const auto bytes = static_cast<std::int64_t>(size_of(plan.compute));
  // Queries, the sums of a chunk and those of all chunks.
  const std::int64_t tile = plan.width() * bytes * (plan.dim + 2 * plan.value_dim);
  const std::int64_t room = std::max<std::int64_t>(1, plan.target.l2 / 2 / tile);
  return static_cast<int>(std::min<std::int64_t>(copies_keys ? 8 : 4, room));
}

int tiles_per_backward_group(const TilePlan& plan) { return 4 * most_vectors / plan.vectors; }

int vectors_for(const Target& target, DType compute, std::int64_t height) {
  const std::int64_t lanes = target.lanes(compute);
  return static_cast<int>(std::min<std::int64_t>((height + lanes - 1) / lanes, most_vectors));
}

std::vector<int> kernel_vectors(const layout::Tiles& tiles, int lanes) {
  std::vector<std::int64_t> number(most_vectors);
  for (std::int64_t t = 0; t < tiles.count(); ++t) {
    const std::int64_t vectors = (tiles.size(t) + lanes - 1) / lanes;
    ++number[static_cast<std::size_t>(std::min<std::int64_t>(vectors, most_vectors) - 1)];
  }
  std::vector<int> result(most_vectors, most_vectors);
  int larger = 0;
  for (int vectors = most_vectors; vectors >= 1; --vectors) {
    const auto at = static_cast<std::size_t>(vectors - 1);
    if (number[at] * 10 >= tiles.count() || (larger == 0 && number[at] > 0)) larger = vectors;
    result[at] = larger == 0 ? vectors : larger;
  }
  return result;
}

layout::TileWeights tile_weights(const Target& target, DType compute) {
  layout::TileWeights weights;
  weights.lanes = target.lanes(compute);
  if (target.registers < 32) weights.weight = {24, 37, 48};
  if (target.half_wide) {
    weights.weight = {16.5, 33, 49};
    weights.per_tile = 5;
    weights.per_piece = 0.05;
  }
  if (target.wide_loads) {
    weights.weight = {18, 33, 49};
    weights.per_run = 4;
    weights.per_piece = 0.1;
  }
  return weights;
}

base::Hash hash(const TilePlan& plan) {
  // A binding for each member: one that is added and forgotten here does not compile.
  const auto& [target, compute, dim, value_dim, vectors, rows, key_block, keys, mods, sparse] =
      plan;
  return base::Hasher()
      .add(hash(target))
      .add(compute)
      .add(dim)
      .add(value_dim)
      .add(vectors)
      .add(rows)
      .add(key_block)
      .add(keys.order)
      .add(keys.element)
      .add(mods.whole)
      .add(mods.piece)
      .add(sparse)
      .finish();
}

std::string to_text(const TilePlan& plan) {
  return fmt::format(
      "{}, dim {}, value dim {}: tiles of {} queries, {} keys at a time, blocks of {} keys",
      name_of(plan.compute), plan.dim, plan.value_dim, plan.width(), plan.rows, plan.key_block);
}

}  // namespace treadle::plan
