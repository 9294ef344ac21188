// A lambda with typed parameters, the same with auto, and the same as text are one graph.
#include <gtest/gtest.h>

#include <vector>

#include "ir/parse.h"
#include "traced.h"
#include "treadle/mods.h"

namespace treadle {
namespace {

using test::traced_mask;
using test::traced_score;

struct Buffers {
  std::vector<float> slopes_data = std::vector<float>(4);
  std::vector<std::int32_t> ids_data = std::vector<std::int32_t>(16);
  std::vector<double> bias_data = std::vector<double>(4 * 16);
  Capture slopes{"slopes", View(slopes_data.data(), {4})};
  Capture ids{"ids", View(ids_data.data(), {16})};
  Capture bias{"bias", View(bias_data.data(), {4, 16})};
  Capture window{"window", 3};
  std::vector<ir::Slot> slots{{"slopes", DType::f32, 1},
                              {"ids", DType::i32, 1},
                              {"bias", DType::f64, 2},
                              {"window", DType::i64, 0}};

  void expect_score(const char* text, const ScoreMod& typed, const ScoreMod& with_auto) const {
    const ir::Graph expected = ir::parse(text, slots);
    EXPECT_EQ(traced_score(typed).graph, expected) << traced_score(typed).text();
    EXPECT_EQ(traced_score(with_auto).graph, expected) << traced_score(with_auto).text();
    EXPECT_EQ(traced_score(parse(text, {slopes, ids, bias, window})).graph, expected);
  }

  void expect_mask(const char* text, const MaskMod& typed, const MaskMod& with_auto) const {
    const ir::Graph expected = ir::parse(text, slots);
    EXPECT_EQ(traced_mask(typed).graph, expected) << traced_mask(typed).text();
    EXPECT_EQ(traced_mask(with_auto).graph, expected) << traced_mask(with_auto).text();
    EXPECT_EQ(traced_mask(parse(text, {slopes, ids, bias, window})).graph, expected);
  }
};

TEST(SameGraph, NoMod) {
  EXPECT_EQ(traced_score({}).text(), "score");
  EXPECT_EQ(traced_mask({}).text(), "true");
}

TEST(SameGraph, SoftCap) {
  Buffers().expect_score(
      "20.0 * tanh(score / 20)",
      [](Score s, Index, Index, Index, Index) { return 20.0 * tanh(s / 20); },
      [](auto s, auto, auto, auto, auto) { return 20.0 * tanh(s / 20); });
}

TEST(SameGraph, Alibi) {
  const Buffers use;
  use.expect_score(
      "score + slopes[h] * (kv - q)",
      [&](Score s, Index, Index h, Index q, Index kv) { return s + use.slopes(h) * (kv - q); },
      [&](auto s, auto, auto h, auto q, auto kv) { return s + use.slopes(h) * (kv - q); });
}

TEST(SameGraph, IndicesMadeOfIndices) {
  const Buffers use;
  use.expect_score(
      "score + bias[h % 4, clamp(q - kv, -7, 8) + 7]",
      [&](Score s, Index, Index h, Index q, Index kv) {
        return s + use.bias(h % 4, clamp(q - kv, -7, 8) + 7);
      },
      [&](auto s, auto, auto h, auto q, auto kv) {
        return s + use.bias(h % 4, clamp(q - kv, -7, 8) + 7);
      });
}

TEST(SameGraph, IndicesReadFromBuffers) {
  const Buffers use;
  use.expect_score(
      "score * bias[ids[q], ids[kv] + 1]",
      [&](Score s, Index, Index, Index q, Index kv) {
        return s * use.bias(use.ids(q), use.ids(kv) + 1);
      },
      [&](auto s, auto, auto, auto q, auto kv) {
        return s * use.bias(use.ids(q), use.ids(kv) + 1);
      });
}

TEST(SameGraph, Where) {
  Buffers().expect_score(
      "where(q == kv || b > 0, -score, -inf)",
      [](Score s, Index b, Index, Index q, Index kv) {
        return where(q == kv || b > 0, -s, -std::numeric_limits<double>::infinity());
      },
      [](auto s, auto b, auto, auto q, auto kv) {
        return where(q == kv || b > 0, -s, -std::numeric_limits<double>::infinity());
      });
}

TEST(SameGraph, AnIntegerBecomesAFloat) {
  Buffers().expect_score(
      "float(q - kv)", [](Score, Index, Index, Index q, Index kv) { return q - kv; },
      [](auto, auto, auto, auto q, auto kv) { return q - kv; });
}

TEST(SameGraph, AConstant) {
  Buffers().expect_score(
      "2.0", [](Score, Index, Index, Index, Index) { return 2; },
      [](auto, auto, auto, auto, auto) { return 2; });
  Buffers().expect_mask(
      "false", [](Index, Index, Index, Index) { return false; },
      [](auto, auto, auto, auto) { return false; });
}

TEST(SameGraph, Causal) {
  Buffers().expect_mask(
      "q >= kv", [](Index, Index, Index q, Index kv) { return q >= kv; },
      [](auto, auto, auto q, auto kv) { return q >= kv; });
}

TEST(SameGraph, WindowOfARuntimeSize) {
  const Buffers use;
  use.expect_mask(
      "q >= kv && q - kv < window",
      [&](Index, Index, Index q, Index kv) { return q >= kv && q - kv < use.window; },
      [&](auto, auto, auto q, auto kv) { return q >= kv && q - kv < use.window; });
}

TEST(SameGraph, Documents) {
  const Buffers use;
  use.expect_mask(
      "ids[q] == ids[kv]",
      [&](Index, Index, Index q, Index kv) { return use.ids(q) == use.ids(kv); },
      [&](auto, auto, auto q, auto kv) { return use.ids(q) == use.ids(kv); });
}

TEST(SameGraph, StridedOrLocal) {
  Buffers().expect_mask(
      "(((q - kv) % 128 == 0) | (q // 128 == kv // 128)) & !(q < kv)",
      [](Index, Index, Index q, Index kv) {
        return (((q - kv) % 128 == 0) | (floor_div(q, 128) == floor_div(kv, 128))) & !(q < kv);
      },
      [](auto, auto, auto q, auto kv) {
        return (((q - kv) % 128 == 0) | (floor_div(q, 128) == floor_div(kv, 128))) & !(q < kv);
      });
}

TEST(SameGraph, BitsAndHeads) {
  Buffers().expect_mask(
      "(((q ^ kv) & (1 << h)) == 0) ^ (b >= 1)",
      [](Index b, Index h, Index q, Index kv) { return (((q ^ kv) & (1 << h)) == 0) ^ (b >= 1); },
      [](auto b, auto h, auto q, auto kv) { return (((q ^ kv) & (1 << h)) == 0) ^ (b >= 1); });
}

}  // namespace
}  // namespace treadle
