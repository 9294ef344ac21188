// Terms of masks: disjoint, together the mask, and the same however the mask was written.
#include "passes/terms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "fuzz.h"
#include "ir/builder.h"
#include "ir/interpret.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "passes/scalars.h"
#include "passes/simplify.h"
#include "random_graph.h"
#include "random_mask.h"
#include "treadle/tensor.h"

namespace treadle::passes {
namespace {

using ir::NodeId;
using ir::Op;
using test::Random;
using test::random_int;
using testing::ElementsAre;

std::vector<std::string> terms_of(const std::string& text) {
  std::vector<std::string> found;
  for (const ir::Graph& term : terms(simplify(ir::parse(text, {})), {}))
    found.push_back(to_text(term));
  return found;
}

std::size_t count_of(const std::string& text) { return terms_of(text).size(); }

TEST(Terms, OfLocalOrStrided) {
  const auto expected = terms_of("q >= kv && (q - kv < 128 || (q - kv) % 128 == 0)");
  ASSERT_EQ(expected.size(), 2u);
  EXPECT_EQ(expected[0].find('%'), std::string::npos) << expected[0];
  EXPECT_NE(expected[1].find("% 128"), std::string::npos) << expected[1];
  // However it is written.
  for (const char* same : {
           "((q - kv) % 128 == 0 || q - kv < 128) && kv <= q",
           "q >= kv && q - kv < 128 || (q - kv) % 128 == 0 && q >= kv",
           "where(q - kv < 128, q >= kv, (q - kv) % 128 == 0 && kv <= q)",
           "not (q < kv || (q - kv >= 128 && (q - kv) % 128 != 0))",
       })
    EXPECT_EQ(terms_of(same), expected) << same;
}

TEST(Terms, OfFixedPatterns) {
  EXPECT_EQ(count_of("q >= kv && (q // 128 == kv // 128 || kv % 128 >= 112)"), 2u);
  EXPECT_EQ(count_of("q >= kv && (q // 128 == kv // 128 || kv % 128 >= 112 || q - kv < 64)"), 3u);
}

TEST(Terms, AreOneWhereNothingIsGained) {
  for (const char* text :
       {"q >= kv", "q >= kv && q - kv < 100 || kv < 4", "(q - kv) % 8 == 0 && q - kv < 1024",
        "q // 64 == kv // 64 || kv // 64 < 2",
        "abs(q // 64 - kv // 64) <= 6 && "
        "abs(q % 64 - kv % 64) <= 6",
        "(q - kv) % 128 == 0 || (q - kv) % 128 == 5", "true", "false"})
    EXPECT_EQ(count_of(text), 1u) << text;
  // The mask itself then.
  const ir::Graph causal = simplify(ir::parse("q >= kv", {}));
  EXPECT_THAT(terms(causal, {}), ElementsAre(causal));
}

TEST(Terms, OfHeads) {
  // Head 0 is local, head 1 strided.
  EXPECT_EQ(count_of("where(h == 0, q - kv < 64, (q - kv) % 64 == 0) && q >= kv"), 2u);
}

TEST(Terms, WithMinAndMax) {
  EXPECT_EQ(terms_of("q - kv < max(16, (q % 64) + 1) && q >= kv"),
            terms_of("(q - kv < 16 || q - kv < (q % 64) + 1) && q >= kv"));
  EXPECT_EQ(count_of("q - kv < max(16, (q % 64) + 1) && q >= kv"), 2u);
}

TEST(Terms, AreAtMostFour) {
  EXPECT_EQ(count_of("q - kv < 3 || q % 5 == kv || (q - kv) % 7 == 0 || kv % 11 == 0 || "
                     "q // 13 == kv // 13 || (q + kv) % 17 == 0"),
            4u);
}

TEST(Terms, OfVeryManyPartsAreOne) {
  std::string text = "true";
  for (int i = 2; i < 12; ++i)
    text += " && (q % " + std::to_string(i) + " == 0 || kv % " + std::to_string(i + 20) + " == 1)";
  EXPECT_EQ(count_of(text), 1u);
}

struct WithScalars {
  Tensor window{DType::i64, {}}, stride{DType::i64, {}};
  std::vector<ir::Slot> slots{{"window", DType::i64, 0}, {"stride", DType::i64, 0}};
  ir::Graph mask = simplify(ir::parse(
      "q >= kv && (q - kv < window || (q - kv) % stride == 0) && window + stride > 0", slots));

  std::vector<ir::Graph> terms_with(std::int64_t a, std::int64_t b) {
    window.data<std::int64_t>()[0] = a;
    stride.data<std::int64_t>()[0] = b;
    return terms(mask, memory());
  }
  std::vector<ConstView> memory() {
    std::vector<ConstView> views;
    for (const ir::Slot& slot : mask.slots())
      views.emplace_back(slot.name == "window" ? window : stride);
    return views;
  }
};

// Whether graphs without captures show the same pairs of 300 queries and keys.
bool show_the_same(const ir::Graph& a, const ir::Graph& b) {
  ir::Interpreter<double> one(a, {}), other(b, {});
  std::vector<std::int64_t> kv(300);
  std::iota(kv.begin(), kv.end(), 0);
  for (const std::int64_t q : kv) {
    for (auto* run : {&one, &other}) (*run)({.q = {&q, 1}, .kv = kv}, 300);
    if (!std::ranges::equal(one.booleans(0), other.booleans(0))) return false;
  }
  return true;
}

TEST(Terms, TakeScalarsAsConstants) {
  WithScalars scalars;
  const std::vector<ir::Graph> found = scalars.terms_with(100, 128);
  const std::vector<ir::Graph> plain =
      terms(simplify(ir::parse("q >= kv && (q - kv < 100 || (q - kv) % 128 == 0)", {})), {});
  ASSERT_EQ(found.size(), 2u);
  for (std::size_t i = 0; i < found.size(); ++i) {
    std::vector<ConstView> memory;
    for (const ir::Slot& slot : found[i].slots())
      memory.emplace_back(slot.name == "window" ? scalars.window : scalars.stride);
    EXPECT_TRUE(show_the_same(with_scalars(found[i], memory).value(), plain[i]))
        << to_text(found[i]);
  }
}

TEST(Terms, KeepScalarsThatNothingIsDividedBy) {
  WithScalars scalars;
  const std::vector<ir::Graph> found = scalars.terms_with(100, 128);
  for (const ir::Graph& term : found) {
    EXPECT_NE(term.find_slot("window"), nullptr) << to_text(term);
    EXPECT_EQ(term.find_slot("stride"), nullptr) << to_text(term);
  }
  EXPECT_EQ(scalars.terms_with(90, 128), found) << "the same kernels";
  EXPECT_NE(scalars.terms_with(90, 64), found);
}

// With these numbers other terms are left than the symbols show.
TEST(Terms, OfScalarsThatAreSpecialNumbers) {
  WithScalars scalars;
  EXPECT_EQ(scalars.terms_with(100, 1).size(), 1u) << "x % 1 is 0";
}

// What a division by zero means is for each pair to say: the mask stays as it is.
TEST(Terms, OfAScalarThatIsZeroAndDividedBy) {
  WithScalars scalars;
  EXPECT_THAT(scalars.terms_with(100, 0), ElementsAre(scalars.mask));
}

// --- random masks ------------------------------------------------------------------------------

TEST(Terms, OfRandomMasksAreDisjointAndComplete) {
  constexpr std::int64_t length = 40;
  Tensor documents(DType::i32, {length});
  for (std::int64_t i = 0; i < length; ++i)
    documents.data<std::int32_t>()[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i / 9);
  const ConstView view = documents;
  struct {
    std::vector<std::int64_t> h, q, kv;
  } points;
  for (std::int64_t i = 0; i < 2 * length * length; ++i) {
    points.h.push_back(i / (length * length));
    points.q.push_back(i / length % length);
    points.kv.push_back(i % length);
  }
  const auto at_all = [&](const ir::Graph& graph) {
    ir::Interpreter<double> run(graph, std::vector<ConstView>(graph.slots().size(), view));
    const auto count = static_cast<std::int64_t>(points.q.size());
    run(ir::Points<double>{.h = points.h, .q = points.q, .kv = points.kv}, count);
    const auto values = run.booleans(0);
    // A value that is the same everywhere is there once.
    return std::vector<std::uint8_t>(values.begin(), values.end());
  };
  int split = 0;
  for (int round = 0; round < test::fuzz_count(5000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    ir::Builder build;
    const NodeId made =
        test::RandomMask(random).make(build, static_cast<int>(random_int(random, 1, 5)));
    const ir::Graph mask = simplify(build.finish({made}));
    const std::vector<ir::Graph> found =
        terms(mask, std::vector<ConstView>(mask.slots().size(), view));
    split += found.size() > 1 ? 1 : 0;
    ASSERT_LE(found.size(), most_terms);
    ASSERT_GE(found.size(), 1u);
    std::vector<int> times(points.q.size());
    for (const ir::Graph& term : found) {
      const auto seen = at_all(term);
      for (std::size_t i = 0; i < seen.size(); ++i) times[i] += seen[i];
    }
    const auto whole = at_all(mask);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      ASSERT_EQ(times[i], whole[i]) << to_text(mask) << " at h " << points.h[i] << ", q "
                                    << points.q[i] << ", kv " << points.kv[i];
    }
  }
  EXPECT_GE(split, test::fuzz_at_least(1000));
}

}  // namespace
}  // namespace treadle::passes
