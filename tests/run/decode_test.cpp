// A call with one query has the bits of the last row of a call with all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "plain_attention.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

// The last row of every head.
Tensor last_rows(const Tensor& all) {
  const std::int64_t rows = all.size(2), width = all.shape().size() == 4 ? all.size(3) : 1;
  Dims shape = all.shape();
  shape[2] = 1;
  Tensor some(all.dtype(), shape);
  const auto bytes = static_cast<std::size_t>(width) * size_of(all.dtype());
  const auto* from = static_cast<const std::byte*>(ConstView(all).data());
  auto* to = static_cast<std::byte*>(View(some).data());
  for (std::int64_t head = 0; head < all.size(0) * all.size(1); ++head) {
    std::memcpy(to + static_cast<std::size_t>(head) * bytes,
                from + static_cast<std::size_t>((head + 1) * rows - 1) * bytes, bytes);
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
};

void expect_last_row(const Case& c) {
  SCOPED_TRACE(testing::Message() << name_of(c.type) << ", " << c.heads << " of " << c.key_heads
                                  << " heads, " << c.keys << " keys, " << c.mod << ", "
                                  << c.window);
  const std::int64_t few = std::min<std::int64_t>(c.keys, 20);  // queries of the whole call
  const Tensor q = test::random_tensor(1, c.type, {2, c.heads, few, c.dim});
  const Tensor k = test::random_tensor(2, c.type, {2, c.key_heads, c.keys, c.dim});
  const Tensor v = test::random_tensor(3, c.type, {2, c.key_heads, c.keys, c.dim});
  const Tensor slopes = test::random_tensor(4, DType::f32, {c.heads});
  const auto options = [&](std::int64_t offset) {
    const std::string shift = "(q + " + std::to_string(offset) + " - kv)";
    const auto with = [&](std::string text) {
      for (std::size_t at; (at = text.find("far")) != std::string::npos;)
        text.replace(at, 3, shift);
      return text;
    };
    Options made;
    made.score_mod = parse(with(c.mod), {{"slopes", slopes}});
    made.mask = parse("(" + shift + " >= 0) && (" + with(c.window) + ")");
    return made;
  };
  const Call call{.captures = {}, .executor = tbb_executor(3), .lse = true, .max = true};
  const Forward whole = compile(options(c.keys - few)).forward({q, k, v}, call);
  const Tensor one = last_rows(q);
  const Forward step = compile(options(c.keys - 1)).forward({one, k, v}, call);
  expect_equal(step.out, last_rows(whole.out), "out");
  expect_equal(step.lse, last_rows(whole.lse), "lse");
  expect_equal(step.max, last_rows(whole.max), "max");
}

TEST(Decode, HasTheBitsOfTheLastRow) {
  for (const DType type : {DType::f32, DType::bf16, DType::f64}) {
    for (const std::int64_t keys : {1, 31, 1024, 1025, 5000}) {
      if (type != DType::f32 && keys != 1025) continue;
      for (const std::int64_t group : {1, 4, 8}) {
        expect_last_row({type, 2 * group, 2, keys, 16});
        expect_last_row({type, 2 * group, 2, keys, 16, "score + slopes[h] * far"});
        expect_last_row({type, 2 * group, 2, keys, 16, "score", "far < 700 || kv < 4"});
        expect_last_row({type, 2 * group, 2, keys, 16, "tanh(score)", "far % 3 == 0"});
      }
    }
  }
}

TEST(Decode, BeyondTheFirstBorders) {
  expect_last_row({DType::f32, 1, 1, 66000, 8});
  expect_last_row({DType::bf16, 4, 1, 140000, 8, "score", "far < 70000"});
}

TEST(Decode, RowsThatHoldNans) {
  Tensor q = test::random_tensor(1, DType::f32, {1, 1, 20, 16});
  const Tensor k = test::random_tensor(2, DType::f32, {1, 1, 50, 16});
  Tensor v = test::random_tensor(3, DType::f32, {1, 1, 50, 16});
  v.at<float>({0, 0, 40, 3}) = std::numeric_limits<float>::infinity();
  Options hides, sees;
  hides.mask = parse("kv < 30");
  const auto expect_same = [&](const Options& options) {
    const Attention attention = compile(options);
    expect_equal(attention.forward({last_rows(q), k, v}).out,
                 last_rows(attention.forward({q, k, v}).out), "out");
  };
  expect_same(hides);
  expect_same(sees);
}

}  // namespace
}  // namespace treadle
