// Choices are made once for a class of lengths, and do not depend on which length came first.
#include "backend/cpu/kept_choices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <thread>

#include "ir/parse.h"
#include "passes/simplify.h"
#include "treadle/executor.h"
#include "treadle/tensor.h"

namespace treadle::backend::cpu {
namespace {

using layout::Extent;
using layout::Mask;

constexpr const char* strided = "q >= kv && (q - kv) % 128 == 0";

Mask mask_of(std::string_view text) { return {passes::simplify(ir::parse(text, {})), {}}; }

Mask mask_of(std::string_view text, const ir::Slot& slot, const Tensor& memory) {
  return {passes::simplify(ir::parse(text, {&slot, 1})), {memory.view()}};
}

Extent square(std::int64_t length) { return {.queries = length, .keys = length}; }

// A KeptChoices and what it is asked with.
struct Asked {
  KeptChoices kept;

  std::shared_ptr<const Chosen> operator()(const Mask& mask, const Extent& extent,
                                           const layout::TileWeights& weights = {}) {
    return kept.find(mask, extent, weights, *serial_executor());
  }
};

TEST(KeptChoices, AreTheSameWhicheverLengthCameFirst) {
  for (const char* text : {strided, "q >= kv", "q >= kv && q - kv < 300", "q // 96 == kv // 96",
                           "q >= kv && kv % 96 >= 90"}) {
    std::vector<std::int64_t> lengths{4097, 5000, 6000, 8192};
    std::shared_ptr<const Chosen> first;
    do {
      Asked asked;
      for (const std::int64_t length : lengths) {
        const auto chosen = asked(mask_of(text), square(length));
        if (!first) first = chosen;
        EXPECT_EQ(chosen->best().order, first->best().order) << text;
        EXPECT_EQ(chosen->best().height, first->best().height) << text;
        EXPECT_EQ(chosen->extent, square(8192));
      }
      EXPECT_EQ(asked.kept.times_chosen(), 1) << text;
    } while (std::ranges::next_permutation(lengths).found);
  }
}

TEST(KeptChoices, ShortLengthsAreExact) {
  Asked asked;
  const Mask mask = mask_of(strided);
  for (const Extent& extent : {square(2048), square(1000), square(1001),
                               Extent{.queries = {1000, 1200}, .keys = {4, 2000}}}) {
    const std::int64_t before = asked.kept.times_chosen();
    const auto chosen = asked(mask, extent);
    EXPECT_EQ(chosen->extent, extent);
    EXPECT_EQ(asked(mask, extent), chosen);
    EXPECT_EQ(asked.kept.times_chosen(), before + 1);
  }
  // Each of the two on its own.
  EXPECT_EQ(asked(mask, {.queries = 1000, .keys = 5001})->extent,
            (Extent{.queries = 1000, .keys = 8192}));
}

TEST(KeptChoices, PositionsAreRounded) {
  Asked asked;
  for (std::int64_t past = 4096; past < 8192; past += 500) {
    const auto chosen =
        asked(mask_of(strided), {.queries = {past, past + 500}, .keys = past + 500});
    EXPECT_EQ(chosen->extent.queries, layout::Range(4096, 4096 + 512)) << past;
  }
  EXPECT_EQ(asked.kept.times_chosen(), 2) << "for keys up to 8192, and up to 16384";
}

// Neither short lengths nor arrays are looked at for them.
TEST(KeptChoices, FewQueriesAreOneTile) {
  Asked asked;
  const Tensor ids(DType::i32, {5000});
  const Mask mask = mask_of("ids[q] == ids[kv]", {"ids", DType::i32, 1}, ids);
  for (const std::int64_t queries : {1, 7, 16}) {
    const layout::Choice best =
        asked(mask, {.queries = {1000, 1000 + queries}, .keys = 1000 + queries})->best();
    EXPECT_EQ(layout::Tiles(best.order, queries, best.height).count(), 1);
  }
  EXPECT_EQ(asked.kept.times_chosen(), 0);
}

TEST(KeptChoices, BatchesAndHeadsCountOnlyIfTheMaskMentionsThem) {
  const auto times = [](std::string_view text) {
    Asked asked;
    for (const std::int64_t heads : {1, 2, 3})
      asked(mask_of(text), {.batch = heads, .heads = heads, .queries = 100, .keys = 100});
    return asked.kept.times_chosen();
  };
  EXPECT_EQ(times("q >= kv"), 1);
  EXPECT_EQ(times("q >= kv + h"), 3);
  EXPECT_EQ(times("q >= kv + b"), 3);
}

TEST(KeptChoices, WeightsAreToldApart) {
  Asked asked;
  const auto wide = asked(mask_of(strided), square(5000));
  const auto narrow = asked(mask_of(strided), square(5000), {.lanes = 8, .weight = {24, 37, 48}});
  EXPECT_NE(wide, narrow);
  EXPECT_EQ(narrow->best().height % 8, 0);
  EXPECT_EQ(asked(mask_of(strided), square(5000)), wide);
  EXPECT_EQ(asked.kept.times_chosen(), 2);
}

// 5000 classes: good for 8192 queries, senseless for fewer than 5000.
TEST(KeptChoices, FewerQueriesThanClassesAreChosenExactly) {
  Asked asked;
  const Mask mask = mask_of("(q - kv) % 4500 == 0");
  for (const std::int64_t length : {8000, 4400, 4500, 4501}) {
    const auto chosen = asked(mask, {.queries = length, .keys = 8192});
    const layout::Choice& best = chosen->best();
    EXPECT_LT(best.order.modulus, length);
    const layout::Tiles tiles(best.order, length, best.height);
    std::int64_t queries = 0;
    for (std::int64_t tile = 0; tile < tiles.count(); ++tile) queries += tiles.size(tile);
    EXPECT_EQ(queries, length);
  }
}

TEST(KeptChoices, TheLongestLengthStaysOne) {
  constexpr std::int64_t longest = (std::int64_t{1} << 31) - 1;
  EXPECT_EQ(class_of(square(longest)), square(longest));
  EXPECT_EQ(class_of(square((std::int64_t{1} << 30) + 1)), square(longest));
  EXPECT_EQ(class_of(square(1 << 30)), square(1 << 30));
  EXPECT_EQ(class_of(square(2049)), square(4096));
  EXPECT_EQ(class_of(square(2048)), square(2048));
}

TEST(KeptChoices, ScalarsCountAsTheirValues) {
  Asked asked;
  Tensor size(DType::i64, {});
  const Mask mask = mask_of("(q - kv) % size == 0", {"size", DType::i64, 0}, size);
  const auto chosen_for = [&](std::int64_t value) {
    size.data<std::int64_t>()[0] = value;
    return asked(mask, square(5000));
  };
  const auto first = chosen_for(64);
  EXPECT_EQ(first->best().order, (layout::Order{layout::Order::Kind::residue, 64}));
  EXPECT_EQ(chosen_for(96)->best().order.modulus, 96);
  EXPECT_EQ(chosen_for(64), first);
  EXPECT_EQ(asked.kept.times_chosen(), 2);
  EXPECT_EQ(asked(mask_of("(q - kv) % 64 == 0"), square(5000)), first);
}

TEST(KeptChoices, ArraysAreLookedAtEachTime) {
  Asked asked;
  const Tensor ids(DType::i32, {3000});
  const Mask mask = mask_of("ids[q] == ids[kv]", {"ids", DType::i32, 1}, ids);
  EXPECT_EQ(asked(mask, square(3000))->extent, square(3000));
  asked(mask, square(3000));
  EXPECT_EQ(asked.kept.times_chosen(), 2);
}

TEST(KeptChoices, TheLastOnesAreKept) {
  Asked asked;
  const Mask mask = mask_of("q >= kv");
  const auto often = asked(mask, square(100));
  for (std::int64_t length = 101; length < 290; ++length) {
    asked(mask, square(length));
    EXPECT_EQ(asked(mask, square(100)), often);
  }
  const std::int64_t before = asked.kept.times_chosen();
  asked(mask, square(101));
  EXPECT_EQ(asked.kept.times_chosen(), before + 1);
}

TEST(KeptChoices, ThreadsMayAskAtOnce) {
  Asked asked;
  const Mask mask = mask_of(strided);
  std::array<std::thread, 4> threads;
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      for (std::int64_t length = 500; length < 600; ++length)
        EXPECT_EQ(asked(mask, square(length))->extent, square(length));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace treadle::backend::cpu
