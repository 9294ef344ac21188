// A call with few queries has the bits of the last rows of a call with many.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <tuple>

#include "guarded.h"
#include "plain_attention.h"
#include "plan/target.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

// The last rows of every head.
Tensor last_rows(const Tensor& all, std::int64_t count = 1) {
  const std::int64_t rows = all.size(2), width = all.shape().size() == 4 ? all.size(3) : 1;
  Dims shape = all.shape();
  shape[2] = count;
  Tensor some(all.dtype(), shape);
  const auto row = width * static_cast<std::int64_t>(size_of(all.dtype()));
  const auto* from = static_cast<const std::byte*>(ConstView(all).data());
  auto* to = static_cast<std::byte*>(View(some).data());
  for (std::int64_t head = 0; head < all.size(0) * all.size(1); ++head) {
    std::memcpy(to + head * count * row, from + ((head + 1) * rows - count) * row,
                static_cast<std::size_t>(count * row));
  }
  return some;
}

void expect_equal(const Tensor& a, const Tensor& b, const char* what) {
  ASSERT_EQ(a.shape(), b.shape());
  std::size_t count = size_of(a.dtype());
  for (const std::int64_t size : a.shape()) count *= static_cast<std::size_t>(size);
  EXPECT_EQ(std::memcmp(ConstView(a).data(), ConstView(b).data(), count), 0) << what;
}

struct Case {
  DType type = DType::f32;
  std::int64_t heads = 1, key_heads = 1, keys = 1, dim = 16;
  std::string mod = "score", window = "true";  // of q - kv
  std::int64_t queries = 1, batch = 2;
  std::string target = "";
  std::optional<DType> key_type = {}, value_type = {};  // others than those of the queries
};

void expect_last_rows(const Case& c) {
  const DType key_type = c.key_type.value_or(c.type), value_type = c.value_type.value_or(c.type);
  SCOPED_TRACE(testing::Message() << name_of(c.type) << ", " << name_of(key_type) << ", "
                                  << name_of(value_type) << ", " << c.heads << " of " << c.key_heads
                                  << " heads, " << c.keys << " keys, " << c.mod << ", " << c.window
                                  << ", " << c.queries << " queries");
  // Of the whole call: more than decode takes.
  const std::int64_t many = 40;
  // Captures, so that cases share kernels.
  Tensor offset(DType::i32, {}), step_offset(DType::i32, {});
  offset.data<std::int32_t>()[0] = static_cast<std::int32_t>(c.keys - many);
  step_offset.data<std::int32_t>()[0] = static_cast<std::int32_t>(c.keys - c.queries);
  const Tensor q = test::random_tensor(1, c.type, {c.batch, c.heads, many, c.dim});
  const Tensor k = test::random_tensor(2, key_type, {c.batch, c.key_heads, c.keys, c.dim});
  const Tensor v = test::random_tensor(3, value_type, {c.batch, c.key_heads, c.keys, c.dim});
  const Tensor slopes = test::random_tensor(4, DType::f32, {c.heads});
  const auto options = [&](const Tensor& offset) {
    const std::string shift = "(q + offset - kv)";
    const auto with = [&](std::string text) {
      for (std::size_t at; (at = text.find("far")) != std::string::npos;)
        text.replace(at, 3, shift);
      return text;
    };
    Options made;
    made.target = c.target;
    made.score_mod = parse(with(c.mod), {{"slopes", slopes}, {"offset", offset}});
    made.mask = parse("(" + shift + " >= 0) && (" + with(c.window) + ")", {{"offset", offset}});
    return made;
  };
  const Call call{.captures = {}, .executor = tbb_executor(3), .lse = true, .max = true};
  const Forward whole = compile(options(offset)).forward({q, k, v}, call);
  const Tensor few = last_rows(q, c.queries);
  const Forward step = compile(options(step_offset)).forward({few, k, v}, call);
  expect_equal(step.out, last_rows(whole.out, c.queries), "out");
  expect_equal(step.lse, last_rows(whole.lse, c.queries), "lse");
  expect_equal(step.max, last_rows(whole.max, c.queries), "max");
}

TEST(Decode, HasTheBitsOfTheLastRow) {
  for (const DType type : {DType::f32, DType::bf16, DType::f64}) {
    for (const std::int64_t keys : {1, 31, 1024, 1025, 5000}) {
      if (type != DType::f32 && keys != 1025) continue;
      for (const std::int64_t group : {1, 4, 8}) {
        expect_last_rows({type, 2 * group, 2, keys, 16});
        expect_last_rows({type, 2 * group, 2, keys, 16, "score + slopes[h] * far"});
        expect_last_rows({type, 2 * group, 2, keys, 16, "score", "far < 700 || kv < 4"});
        expect_last_rows({type, 2 * group, 2, keys, 16, "tanh(score)", "far % 3 == 0"});
      }
    }
  }
}

TEST(Decode, HasTheBitsOfSeveralRows) {
  for (const std::int64_t queries : {2, 3, 7, 8, 16}) {
    for (const std::int64_t group : {1, 2, 4}) {
      expect_last_rows({DType::f32, 2 * group, 2, 1500, 16, "score", "true", queries});
      expect_last_rows({DType::bf16, 2 * group, 2, 1100, 16, "score + slopes[h] * far",
                        "far < 700 || kv < 4", queries});
    }
  }
}

// Narrower vectors and fewer registers.
TEST(Decode, HasTheBitsOnEveryTargetThatRuns) {
  for (const std::string& target : plan::runnable_targets()) {
    SCOPED_TRACE(target);
    for (const std::int64_t queries : {1, 3}) {
      for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
        Case c{type, 8, 2, 1100, 40, "score + slopes[h] * far", "far < 700 || kv < 4", queries};
        c.target = target;
        expect_last_rows(c);
      }
    }
  }
}

TEST(Decode, HasTheBitsOfKeysOfEightBits) {
  for (const std::string& target : plan::runnable_targets()) {
    SCOPED_TRACE(target);
    for (const auto& [q, k, v] : {std::tuple(DType::f32, DType::e4m3, DType::e4m3),
                                  std::tuple(DType::bf16, DType::e5m2, DType::i8),
                                  std::tuple(DType::f64, DType::i8, DType::e4m3),
                                  std::tuple(DType::f16, DType::e4m3, DType::f16)}) {
      for (const std::int64_t queries : {1, 3}) {
        Case c{q, 8, 2, 1100, 40, "score + slopes[h] * far", "far < 700 || kv < 4", queries};
        c.target = target;
        c.key_type = k;
        c.value_type = v;
        expect_last_rows(c);
      }
    }
  }
}

// Many lists of keys are done one by one, few of them chunk by chunk.
TEST(Decode, ManyListsAndFew) {
  for (const std::int64_t batch : {1, 20}) {
    expect_last_rows({DType::f32, 2, 1, 5000, 16, "score", "far < 900 || kv < 4", 1, batch});
    expect_last_rows({DType::f32, 2, 1, 5000, 16, "score", "far > 6000", 1, batch});
  }
}

TEST(Decode, BeyondTheFirstBorders) {
  expect_last_rows({DType::f32, 1, 1, 66000, 8});
  expect_last_rows({DType::bf16, 4, 1, 140000, 8, "score", "far < 70000"});
}

// Of scores that are zeros, the maximum is the first one's, whose sign it has.
TEST(Decode, ZerosKeepTheirOrder) {
  for (const float first : {0.0f, -0.0f}) {
    const Tensor q = test::random_tensor(1, DType::f32, {1, 1, 40, 16});
    const Tensor k(DType::f32, {1, 1, 70, 16}),
        v = test::random_tensor(2, DType::f32, {1, 1, 70, 16});
    Tensor zeros(DType::f32, {70});
    for (int i = 0; i < 70; ++i)
      zeros.data<float>()[static_cast<std::size_t>(i)] = i % 4 == 1 ? -first : first;
    Options options;
    // The first key that counts is in the second lane; the first lane has the other zero.
    options.score_mod = parse("where(kv % 5 == 0, -1.0, zeros[kv] * 1.0)", {{"zeros", zeros}});
    const Attention attention = compile(options);
    const Call call{.lse = true, .max = true};
    expect_equal(attention.forward({last_rows(q), k, v}, call).max,
                 last_rows(attention.forward({q, k, v}, call).max), "max");
  }
}

// An infinity that a row does not see may be in a block that it looks at.
TEST(Decode, RowsThatHoldNans) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const Tensor q = test::random_tensor(1, DType::f32, {1, 2, 40, 16});
  Tensor k = test::random_tensor(2, DType::f32, {1, 1, 60, 16});
  Tensor v = test::random_tensor(3, DType::f32, {1, 1, 60, 16});
  const auto expect_same = [&](const std::string& of_kv, std::int64_t queries) {
    const auto options = [&](std::int64_t offset) {
      Options made;
      made.mask = parse("kv <= q + " + std::to_string(offset) + " && (" + of_kv + ")");
      return made;
    };
    const Call call{.lse = true, .max = true};
    const Forward few = compile(options(60 - queries)).forward({last_rows(q, queries), k, v}, call);
    const Forward many = compile(options(20)).forward({q, k, v}, call);
    expect_equal(few.out, last_rows(many.out, queries), "out");
    expect_equal(few.lse, last_rows(many.lse, queries), "lse");
    return few.out.at<float>({0, 0, 0, 3});
  };
  v.at<float>({0, 0, 57, 3}) = infinity;
  for (const std::int64_t queries : {1, 4, 8}) {
    const float first = expect_same("true", queries);
    EXPECT_EQ(first == infinity, queries < 4) << "the first of many rows does not see key 57";
    EXPECT_TRUE(std::isfinite(expect_same("kv != 57", queries)));
  }
  k.at<float>({0, 0, 56, 2}) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isfinite(expect_same("true", 8)));
  EXPECT_TRUE(std::isnan(expect_same("true", 1)));
}

// Blocks of keys that are listed for each head, and single keys, which the forward gathers.
TEST(Decode, ListedKeys) {
  const Tensor q = test::random_tensor(1, DType::f32, {1, 2, 40, 16});
  const Tensor k = test::random_tensor(2, DType::f32, {1, 2, 3000, 16});
  Options options;
  options.mask = parse("kv % 5 != 3");
  const Attention attention = compile(options);
  for (const std::int64_t block : {64, 1}) {
    Tensor listed(DType::i32, {1, 2, 1, 20});
    for (int i = 0; i < 40; ++i)
      listed.data<std::int32_t>()[static_cast<std::size_t>(i)] = i % 20 * 2 + i / 20;
    const auto forward = [&](const Tensor& queries) {
      Call call{.lse = true};
      call.layout = attention.layout(KeyLists{queries.size(2), block, listed}, {queries, k, k});
      return attention.forward({queries, k, k}, call);
    };
    const Forward many = forward(q), one = forward(last_rows(q));
    expect_equal(one.out, last_rows(many.out), "out");
    expect_equal(one.lse, last_rows(many.lse), "lse");
  }
}

// Keys and values whose memory begins or ends at a page that must not be touched.
TEST(Decode, ReadsNothingOutside) {
  for (const auto at : {test::Guarded::At::end, test::Guarded::At::begin}) {
    for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::e4m3, DType::i8}) {
      for (const std::int64_t keys : {1, 15, 16, 17, 33, 70}) {
        for (const std::int64_t dim : {5, 16, 40}) {
          const DType query_type = size_of(type) == 1 ? DType::f32 : type;
          const Tensor q = test::random_tensor(1, query_type, {1, 4, 1, dim});
          const Tensor k = test::random_tensor(2, type, {1, 2, keys, dim});
          const auto bytes = static_cast<std::size_t>(k.count()) * size_of(type);
          const test::Guarded keys_memory(bytes, at), values_memory(bytes, at);
          for (const test::Guarded* memory : {&keys_memory, &values_memory})
            std::memcpy(memory->data(), ConstView(k).data(), bytes);
          const auto view = [&](const test::Guarded& memory) {
            return ConstView(static_cast<const void*>(memory.data()), type, k.shape());
          };
          const Attention attention = compile({});
          expect_equal(attention.forward({q, view(keys_memory), view(values_memory)}).out,
                       attention.forward({q, k, k}).out, "out");
        }
      }
    }
  }
}

}  // namespace
}  // namespace treadle
