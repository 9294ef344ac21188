// Reads through indices that were inside when they were looked at and are not any more: nothing
// outside is touched, whatever the indices are now.
#include <gtest/gtest.h>

#include <deque>
#include <limits>
#include <random>

#include "agreement.h"
#include "base/element.h"
#include "guarded.h"
#include "ir/parse.h"
#include "treadle/tensor.h"

namespace treadle::test {
namespace {

constexpr std::int64_t clamp_queries = 19, clamp_keys = 37, clamp_heads = 3;

// A read with its form. `ids` holds numbers below 8 at first, and there is room for that.
struct ClampedRead {
  std::string text;
  Dims shape;  // of a
};

const std::vector<ClampedRead> clamped_reads{
    {"a[ids[q]]", {8}},
    {"a[ids[kv]]", {8}},
    {"a[ids[h]]", {8}},
    {"a[ids[(q * 3 + kv) % 40]]", {8}},
    {"a[ids[q] + ids[kv]]", {15}},
    {"a[ids[q] * ids[kv]]", {50}},
    {"a[ids[ids[q]]]", {8}},
    {"a[ids[h] + q]", {7 + clamp_queries}},
    {"a[ids[kv] + q]", {7 + clamp_queries}},
    {"a[ids[h] + q - kv + 36]", {7 + clamp_queries + 36}},
    {"a[ids[h] - q + 18]", {7 + clamp_queries}},
    {"a[ids[kv] + kv - q + 18]", {7 + 36 + clamp_queries}},
    {"a[ids[q], kv]", {8, clamp_keys}},
    {"a[q, ids[h] + kv]", {clamp_queries, 7 + clamp_keys}},
    {"a[ids[q], ids[q] + kv]", {8, 7 + clamp_keys}},
    {"a[ids[h], kv, q]", {8, clamp_keys, clamp_queries}},
    {"a[kv, ids[q]]", {clamp_keys, 8}},
    {"a[ids[q] // 2, ids[kv] % 3]", {4, 3}},
    {"a[abs(ids[q] - 9)]", {10}},
    {"a[int(float(ids[q]) * 1.5)]", {11}},
};

std::ostream& operator<<(std::ostream& out, const ClampedRead& read) { return out << read.text; }

class ClampedReads : public testing::TestWithParam<ClampedRead> {};

TEST_P(ClampedReads, StayInsideWhenIndicesChange) {
  const ClampedRead& read = GetParam();
  std::mt19937_64 random(7);
  for (const DType ids_type : {DType::i32, DType::i64}) {
    for (const DType dtype : {DType::f32, DType::i8}) {
      const ir::Graph graph = ir::parse(
          read.text, std::vector<ir::Slot>{{"a", dtype, static_cast<int>(read.shape.size())},
                                           {"ids", ids_type, 1}});
      for (const auto at : {Guarded::At::end, Guarded::At::begin}) {
        const auto size = static_cast<std::size_t>(count_of(read.shape)) * size_of(dtype);
        const Guarded memory(size, at);
        Tensor ids(ids_type, {40});
        const auto fill = [&](const std::function<std::int64_t(std::int64_t)>& value) {
          for (std::int64_t i = 0; i < 40; ++i)
            base::store_int(ids.view().data(), ids_type, i, value(i));
        };
        std::vector<ConstView> views;
        for (const ir::Slot& slot : graph.slots())
          views.push_back(slot.name == "a" ? ConstView(memory.data(), dtype, read.shape)
                                           : ConstView(ids));
        fill([](std::int64_t i) { return i * 5 % 8; });
        const plan::ModFacts facts =
            plan::find_facts(graph, views, {1, clamp_heads, clamp_queries, clamp_keys}, {});
        ASSERT_EQ(facts.reads, plan::Reads::clamped);
        EXPECT_TRUE(facts.narrow);
        for (const plan::Target& target : targets_here()) {
          const Setting setting{.target = target, .facts = facts, .vectors = 3};
          const Agreement kernel(graph, setting);
          Tile tile{.h = 2};
          for (int i = 0; i < std::min<int>(clamp_queries, 3 * setting.lanes()); ++i)
            tile.q.push_back(i);
          for (int i = 0; i < clamp_keys; ++i)
            if (i < 20 || i % 3 == 0) tile.keys.push_back(i);
          fill([](std::int64_t i) { return i * 5 % 8; });
          kernel.expect(tile, views);

          const ModRunner run(graph, setting);
          const std::int64_t low = ids_type == DType::i32
                                       ? std::numeric_limits<std::int32_t>::min()
                                       : std::numeric_limits<std::int64_t>::min();
          const std::vector<std::int64_t> hostile{low,     -(low + 1), -1,     8,
                                                  1 << 20, -(1 << 20), 1 << 30};
          for (const std::int64_t value : hostile) {
            fill([&](std::int64_t) { return value; });
            (void)run(tile, views);
          }
          fill([&](std::int64_t) { return static_cast<std::int64_t>(random()); });
          (void)run(tile, views);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Clamped, ClampedReads, testing::ValuesIn(clamped_reads),
                         [](const auto& info) { return "read_" + std::to_string(info.index); });

}  // namespace
}  // namespace treadle::test
