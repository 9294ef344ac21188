// The shapes of forward kernels.
#include "plan/tile_plan.h"

#include <gtest/gtest.h>

#include <set>

namespace treadle::plan {
namespace {

TEST(TilePlans, AsText) {
  EXPECT_EQ(to_text(plan_tile(find_target("haswell"), DType::f32, 64, 64, 3)),
            "f32, dim 64, value dim 64: tiles of 24 queries, 4 keys at a time, blocks of "
            "128 keys");
  EXPECT_EQ(to_text(plan_tile(find_target("skylake-avx512"), DType::f64, 128, 100, 2)),
            "f64, dim 128, value dim 100: tiles of 16 queries, 12 keys at a time, blocks "
            "of 64 keys");
  EXPECT_EQ(to_text(plan_tile(find_target("x86-64"), DType::f32, 512, 512, 1)),
            "f32, dim 512, value dim 512: tiles of 4 queries, 6 keys at a time, blocks of "
            "32 keys");
}

// Accumulators, one vector of B per column and a broadcast of A fit the registers.
TEST(TilePlans, FitTheRegisters) {
  for (const char* name : {"x86-64", "haswell", "skylake-avx512", "aarch64"}) {
    const Target target = find_target(name);
    for (const DType compute : {DType::f32, DType::f64}) {
      for (int vectors = 1; vectors <= most_vectors; ++vectors) {
        for (const std::int64_t dim : {1, 64, 128, 512}) {
          const TilePlan plan = plan_tile(target, compute, dim, dim, vectors);
          EXPECT_GE(plan.rows, 1);
          EXPECT_LE(plan.rows * vectors + vectors + 1, target.registers) << name << vectors;
          EXPECT_EQ(plan.width(), vectors * target.lanes(compute));
          EXPECT_GE(plan.key_block, plan.rows);
        }
      }
    }
  }
}

// All tile heights of a call share its blocks of keys.
TEST(TilePlans, BlocksDoNotDependOnTheTile) {
  for (const std::int64_t dim : {1, 16, 64, 128, 200, 512}) {
    const Target target = find_target("haswell");
    const std::int64_t block = plan_tile(target, DType::f32, dim, dim, 1).key_block;
    for (int vectors = 2; vectors <= most_vectors; ++vectors)
      EXPECT_EQ(plan_tile(target, DType::f32, dim, dim, vectors).key_block, block);
  }
}

TEST(TilePlans, GroupsFitTheCache) {
  for (const std::int64_t dim : {1, 64, 128, 512, 4096}) {
    const TilePlan plan = plan_tile(find_target("haswell"), DType::f32, dim, dim, 3);
    for (const bool copies : {false, true}) {
      const int tiles = tiles_per_group(plan, copies);
      EXPECT_GE(tiles, 1);
      EXPECT_LE(tiles, copies ? 8 : 4);
      const std::int64_t bytes = plan.width() * 4 * 3 * dim;
      EXPECT_TRUE(tiles == 1 || tiles * bytes <= plan.target.l2);
    }
    EXPECT_GE(tiles_per_group(plan, true), tiles_per_group(plan, false));
  }
}

TEST(TilePlans, HashTellsThemApart) {
  std::set<base::Hash> hashes;
  int count = 0;
  for (const char* name : {"haswell", "skylake-avx512"}) {
    for (const DType compute : {DType::f32, DType::f64}) {
      for (const std::int64_t dim : {32, 64}) {
        for (const std::int64_t value_dim : {32, 64}) {
          for (int vectors = 1; vectors <= 3; ++vectors) {
            hashes.insert(hash(plan_tile(find_target(name), compute, dim, value_dim, vectors)));
            ++count;
          }
        }
      }
    }
  }
  EXPECT_EQ(static_cast<int>(hashes.size()), count);
}

// Causal masks have long runs, windows short ones, residue classes steps; short sequences do not pay
// for kernels that take longer to compile.
TEST(TilePlans, SparseIsWhatLooksAtFewKeysAtATime) {
  using layout::Run;
  const auto sparse = [](std::int64_t keys, std::vector<Run> runs) {
    return is_sparse(layout::Layout({1, 1, 48, keys}, layout::Tiles({}, 48, 48), false, false,
                                    {std::move(runs)}));
  };
  const Run window{1000, 1050, false}, full{0, 1000, true},
      steps = Run::stepped({0, 1, 128, 32}, true);
  EXPECT_FALSE(sparse(4096, {full}));
  EXPECT_FALSE(sparse(4096, {full, window}));
  EXPECT_TRUE(sparse(4096, {window}));
  EXPECT_TRUE(sparse(4096, {steps}));
  EXPECT_TRUE(sparse(8192, {full, Run::stepped({4096, 1, 8, 100}, false)}));
  EXPECT_FALSE(sparse(1024, {Run::stepped({0, 1, 128, 8}, true)}));
}

TEST(TileWeights, PreferFullerTiles) {
  std::vector<Target> targets;
  for (const char* name : {"x86-64", "haswell", "skylake-avx512"})
    targets.push_back(find_target(name));
  targets.push_back(targets.back());
  targets.back().half_wide = true;
  targets.push_back(find_target("skylake-avx512"));
  targets.back().wide_loads = true;
  for (const Target& target : targets) {
    for (const DType compute : {DType::f32, DType::f64}) {
      const layout::TileWeights weights = tile_weights(target, compute);
      EXPECT_EQ(weights.lanes, target.lanes(compute));
      EXPECT_EQ(weights.vectors(), most_vectors);
      const std::int64_t lanes = weights.lanes;
      double last = 1e9;
      for (int vectors = 1; vectors <= most_vectors; ++vectors) {
        EXPECT_LE(weights.of(vectors * lanes) / vectors, last);
        last = weights.of(vectors * lanes) / vectors;
      }
      EXPECT_EQ(weights.of(1), weights.of(lanes));
      EXPECT_LT(weights.of(lanes), weights.of(lanes + 1));
    }
  }
}

}  // namespace
}  // namespace treadle::plan
