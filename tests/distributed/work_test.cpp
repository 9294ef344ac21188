// What passes have to do, leaf by leaf, against layouts of all tiles at once.
#include "distributed/work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>

#include "api/stages.h"
#include "backend/cpu/make_cpu.h"
#include "backend/held_layout.h"
#include "base/error.h"
#include "plan/backward_schedule.h"
#include "plan/chunks.h"
#include "treadle/mods.h"

namespace treadle::distributed {
namespace {

using layout::Range;

struct Made {
  api::Stages stages;
  std::unique_ptr<const backend::Backend> cpu;
  backend::Bindings bound;

  explicit Made(const MaskMod& mask) {
    Options options;
    options.mask = mask;
    stages = api::stages_of(options);
    cpu = backend::cpu::make_cpu(stages.program, "");
    bound.mask = api::memory_of(stages.program.mask.slots(), stages.captures);
  }
};

backend::Sizes sizes_of(std::int64_t queries, std::int64_t keys) {
  return {.batch = 2,
          .heads = 4,
          .key_batch = 2,
          .key_heads = 2,
          .queries = queries,
          .keys = keys,
          .dim = 32,
          .value_dim = 32};
}

struct Mask {
  const char *name, *text;

  friend void PrintTo(const Mask& mask, std::ostream* out) { *out << mask.name; }
};

class PassWorkOf : public testing::TestWithParam<Mask> {};

INSTANTIATE_TEST_SUITE_P(
    Masks, PassWorkOf,
    testing::Values(Mask{"causal", "q >= kv"}, Mask{"window", "q >= kv && q - kv < 700"},
                    Mask{"local_or_strided", "q >= kv && (q - kv < 64 || (q - kv) % 64 == 0)"},
                    Mask{"fixed", "q >= kv && (kv % 64 >= 56 || q // 64 == kv // 64)"},
                    Mask{"by_batch", "q >= kv && q - kv < 100 + 900 * b"},
                    Mask{"by_head", "q >= kv && q - kv < 100 + 300 * h"},
                    Mask{"by_both", "q * (b + 1) >= kv * (h + 1)"}, Mask{"all", "true"},
                    Mask{"nothing", "kv < 0"}),
    [](const auto& info) { return info.param.name; });

TEST_P(PassWorkOf, IsThatOfTheWholeLayout) {
  const Made made{parse(GetParam().text)};
  const auto executor = tbb_executor(2);
  for (const auto& [queries, keys] :
       {std::pair<std::int64_t, std::int64_t>{3000, 3000}, {1000, 9000}, {0, 100}, {2000, 1}}) {
    SCOPED_TRACE(fmt::format("{} queries, {} keys", queries, keys));
    const backend::Sizes sizes = sizes_of(queries, keys);
    const auto passes = made.cpu->passes(sizes, made.bound, *executor);
    const treadle::Layout layout = made.cpu->layout(sizes, made.bound, *executor);
    ASSERT_EQ(passes->count(), layout.held()->terms.size());
    for (std::size_t pass = 0; pass < passes->count(); ++pass) {
      const layout::Layout& whole = layout.held()->terms[pass].layout;
      const std::int64_t per_leaf = passes->tiles_per_leaf(pass);
      const std::int64_t leaves = leaves_of(whole.tiles().count(), per_leaf);
      // Each of several ranks some of them.
      PassWork work;
      for (const std::int64_t part : {0, 1, 2, 3, 4})
        work.append(PassWork::from_bytes(
            work_of(*passes, pass, sizes, {leaves * part / 5, leaves * (part + 1) / 5}, *executor)
                .to_bytes()));
      const PassWork at_once = work_of(*passes, pass, sizes, leaves, *executor);
      EXPECT_EQ(work, at_once);
      EXPECT_EQ(work.leaves, leaves);
      const plan::ChunkWork all = plan::chunk_work(whole);
      EXPECT_EQ(work.chunk_work.keys, all.keys);
      EXPECT_EQ(work.chunk_work.looked_at, all.looked_at);
      EXPECT_EQ(plan::chunks_per_task(work.chunk_work, sizes.keys), plan::chunks_per_task(whole));
      std::int64_t pairs = 0;
      for (const std::int64_t some : work.pairs) pairs += some;
      EXPECT_EQ(pairs * (sizes.batch / work.batch_lists) * (sizes.key_heads / work.head_lists),
                whole.run_pairs());
    }
  }
}

TEST_P(PassWorkOf, KnowsKeysAndTiles) {
  const Made made{parse(GetParam().text)};
  const auto executor = tbb_executor(2);
  const backend::Sizes sizes = sizes_of(2000, 3000);
  const auto passes = made.cpu->passes(sizes, made.bound, *executor);
  const treadle::Layout layout = made.cpu->layout(sizes, made.bound, *executor);
  for (std::size_t pass = 0; pass < passes->count(); ++pass) {
    const layout::Layout& whole = layout.held()->terms[pass].layout;
    const std::int64_t per_leaf = passes->tiles_per_leaf(pass);
    const PassWork work =
        work_of(*passes, pass, sizes, leaves_of(whole.tiles().count(), per_leaf), *executor);
    for (std::int64_t leaf = 0; leaf < work.leaves; ++leaf) {
      for (std::int64_t b = 0; b < sizes.batch; ++b) {
        for (std::int64_t h = 0; h < sizes.key_heads; ++h) {
          const std::size_t list = work.list(leaf, b, h);
          const Range tiles = tiles_of({leaf, leaf + 1}, whole.tiles().count(), per_leaf);
          std::set<std::int64_t> seen, known;
          std::vector<std::set<std::int64_t>> by_chunk(static_cast<std::size_t>(work.chunks));
          for (std::int64_t head = 2 * h; head < 2 * h + 2; ++head) {
            for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
              layout::for_each_piece(whole.runs(b, head, tile), [&](Range keys, bool) {
                for (std::int64_t key = keys.begin; key < keys.end; ++key) {
                  seen.insert(key);
                  by_chunk[static_cast<std::size_t>(plan::chunk_of(key))].insert(tile -
                                                                                 tiles.begin);
                }
              });
            }
          }
          layout::for_each_piece(work.keys[list], [&](Range keys, bool) {
            for (std::int64_t key = keys.begin; key < keys.end; ++key) known.insert(key);
          });
          EXPECT_TRUE(std::ranges::includes(known, seen)) << leaf;
          // These masks have few stretches of keys, of which none has to be closed.
          EXPECT_LE(known.size(), 2 * seen.size());
          for (std::size_t chunk = 0; chunk < by_chunk.size(); ++chunk) {
            const PassWork::TileSpan span = work.tiles_of(list)[chunk];
            ASSERT_EQ(span.begin == span.end, by_chunk[chunk].empty());
            if (by_chunk[chunk].empty()) continue;
            EXPECT_EQ(span.begin, *by_chunk[chunk].begin());
            EXPECT_EQ(span.end, *by_chunk[chunk].rbegin() + 1);
          }
        }
      }
    }
  }
}

TEST(PassWork, MessagesThatAreNoneAreRefused) {
  const Made made{parse("q >= kv && (q - kv < 64 || (q - kv) % 64 == 0)")};
  const auto executor = tbb_executor(1);
  const backend::Sizes sizes = sizes_of(500, 3000);
  const auto passes = made.cpu->passes(sizes, made.bound, *executor);
  const std::vector<std::byte> bytes = work_of(*passes, 0, sizes, 1, *executor).to_bytes();
  EXPECT_NO_THROW(PassWork::from_bytes(bytes));
  for (std::size_t length = 0; length < bytes.size(); length += 7)
    EXPECT_THROW(PassWork::from_bytes(std::span(bytes).first(length)), base::InternalError);
  std::vector<std::byte> longer = bytes;
  longer.push_back({});
  EXPECT_THROW(PassWork::from_bytes(longer), base::InternalError);
  // Whatever a number says, it is an error or another work, and nothing is read beside it.
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    for (const std::int64_t number : {std::int64_t{-1}, std::int64_t{1} << 40}) {
      std::vector<std::byte> changed = bytes;
      std::memcpy(changed.data() + at, &number, sizeof(number));
      try {
        (void)PassWork::from_bytes(changed);
      } catch (const base::InternalError&) {
        continue;
      }
    }
  }
}

}  // namespace
}  // namespace treadle::distributed
