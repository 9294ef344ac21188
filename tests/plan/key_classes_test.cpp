// Classes of queries with keys of their own, and tasks made of them.
#include "plan/key_classes.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "layout/build.h"
#include "passes/simplify.h"
#include "plan/backward_schedule.h"
#include "plan/chunks.h"
#include "traced.h"
#include "treadle/treadle.h"

namespace treadle::plan {
namespace {

using layout::Order;

layout::Layout build(const char* mask, const layout::Extent& extent, const Order& order,
                     std::int64_t height = 16) {
  const ir::Graph graph = passes::simplify(test::traced_mask(parse(mask)).graph);
  return layout::build({graph, {}}, extent, layout::Tiles(order, extent.queries, height),
                       *serial_executor());
}

Order residues(std::int64_t modulus) { return {.kind = Order::Kind::residue, .modulus = modulus}; }

TEST(KeyClassesOf, AStridedMaskAreItsResidues) {
  const auto found =
      key_classes(build("q >= kv && (q - kv) % 8 == 0", {1, 1, 512, 512}, residues(8)));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->modulus, 8);
  ASSERT_EQ(found->classes.size(), 8u);
  for (std::int64_t r = 0; r < 8; ++r) {
    EXPECT_EQ(found->classes[static_cast<std::size_t>(r)].key_residue, r);
    EXPECT_EQ(found->classes[static_cast<std::size_t>(r)].tiles, layout::Range(r * 4, r * 4 + 4));
  }
}

TEST(KeyClassesOf, AShiftedMaskAreShifted) {
  const auto found = key_classes(build("(q - kv) % 8 == 3", {1, 1, 64, 512}, residues(8)));
  ASSERT_TRUE(found.has_value());
  for (std::int64_t r = 0; r < 8; ++r)
    EXPECT_EQ(found->classes[static_cast<std::size_t>(r)].key_residue, (r + 5) % 8);
}

TEST(KeyClassesOf, OtherMasksAreNone) {
  const layout::Extent extent{1, 1, 512, 512};
  EXPECT_FALSE(key_classes(build("q >= kv && (q - kv) % 8 == 0", extent, {})).has_value());
  EXPECT_FALSE(key_classes(build("q >= kv", extent, residues(8))).has_value());
  EXPECT_FALSE(key_classes(build("(q - kv) % 8 < 2", extent, residues(8))).has_value());
  EXPECT_FALSE(key_classes(build("(q - kv) % 12 == 0", extent, residues(8))).has_value());
  EXPECT_FALSE(key_classes(build("(q - kv) % 4 == 0", extent, residues(8))).has_value());
  EXPECT_FALSE(key_classes(build("kv < 0", extent, residues(8))).has_value());
}

// Every key, and every tile against every chunk, is one task's.
void expect_all_once(const layout::Layout& layout, const KeyHeads& of) {
  const BackwardSchedule schedule = schedule_backward(layout, of, {});
  ASSERT_TRUE(key_classes(layout).has_value());
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, int> keys;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>, int> tiles;
  std::int64_t tasks = 0;
  for (const auto& group : schedule.groups) {
    for (const BackwardTask& task : group) {
      EXPECT_EQ(task.number, tasks++);
      EXPECT_LE(task.own.length(), schedule.longest);
      layout::for_each_piece({&task.own, 1}, [&](layout::Range piece, bool) {
        for (std::int64_t key = piece.begin; key < piece.end; ++key)
          ++keys[{task.key_batch, task.key_head, key}];
      });
      for (std::int64_t tile = task.tiles.begin; tile < task.tiles.end; ++tile)
        for (std::int64_t chunk = task.chunks.begin; chunk < task.chunks.end; ++chunk)
          ++tiles[{task.key_batch, task.key_head, tile, chunk}];
      if (schedule.completes_dq) {
        EXPECT_EQ(task.chunks, layout::Range(schedule.chunks));
      }
    }
  }
  EXPECT_EQ(tasks, schedule.tasks);
  const layout::Extent& extent = layout.extent();
  EXPECT_EQ(std::ssize(keys), of.batch * of.heads * extent.keys.count());
  EXPECT_EQ(std::ssize(tiles),
            of.batch * of.heads * layout.tiles().count() * chunks_of(extent.keys).count());
  for (const auto& [key, times] : keys) EXPECT_EQ(times, 1) << std::get<2>(key);
  for (const auto& [tile, times] : tiles) EXPECT_EQ(times, 1) << std::get<2>(tile);
}

TEST(ClassesAsTasks, HaveEveryKeyAndTileOnce) {
  const char* strided = "(q - kv) % 100 == 3";
  expect_all_once(build(strided, {2, 4, 1000, 3000}, residues(100)), {2, 2});
  expect_all_once(build(strided, {1, 1, 30, 3000}, residues(100)), {1, 1});
  expect_all_once(build(strided, {1, 1, {990, 1100}, {1020, 3000}}, residues(100)), {1, 1});
  expect_all_once(build("q % 100 == kv % 100 && kv % 100 != 7", {1, 1, 500, 500}, residues(100)),
                  {1, 1});
  expect_all_once(build("(q - kv) % 2 == 1", {1, 1, 500, {1020, 9000}}, residues(2)), {1, 1});
}

TEST(ClassesAsTasks, AreNotForGradientsOfCaptures) {
  const layout::Layout layout = build("(q - kv) % 100 == 3", {1, 1, 1000, 3000}, residues(100));
  const CaptureReach reach;
  EXPECT_EQ(schedule_backward(layout, {1, 1}, {&reach, 1}).groups.size(),
            schedule_chunks(layout, {1, 1}, {&reach, 1}, chunks_per_task(layout)).groups.size());
  EXPECT_TRUE(schedule_backward(layout, {1, 1}, {}).completes_dq);
}

}  // namespace
}  // namespace treadle::plan
