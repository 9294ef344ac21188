// After prepare, calls compile nothing.
#include <gtest/gtest.h>

#include <limits>

#include "api/inspect.h"
#include "expect_error.h"
#include "plain_attention.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

struct Prepared {
  std::int64_t heads = 4, key_heads = 2;
  DType type = DType::f32;

  [[nodiscard]] CallSpec spec(std::int64_t queries, std::int64_t keys,
                              bool backward = false) const {
    return {{type, {1, heads, queries, 16}},
            {type, {1, key_heads, keys, 16}},
            {type, {1, key_heads, keys, 16}},
            backward};
  }
  [[nodiscard]] Tensor q(std::int64_t queries) const {
    return test::random_tensor(1, type, {1, heads, queries, 16});
  }
  [[nodiscard]] Tensor k(std::int64_t keys) const {
    return test::random_tensor(2, type, {1, key_heads, keys, 16});
  }
};

// Masks that no other test has, so that nothing is compiled already.
Options options_of(const std::string& mask) {
  Options options;
  options.mask = parse(mask);
  options.score_mod = parse("score * 1.0625 + 0.03125 * float(q - kv)");
  return options;
}

TEST(Prepare, StepsCompileNothing) {
  for (const char* mask : {"q + 40000 >= kv", "q + 40001 >= kv && kv >= q - 40000"}) {
    const Attention attention = compile(options_of(mask));
    const Prepared p;
    attention.prepare({p.spec(1, 100), p.spec(50, 100)});
    const std::int64_t before = api::kernels_made();
    for (const std::int64_t keys : {1, 17, 100, 1500})
      (void)attention.forward({p.q(1), p.k(keys), p.k(keys)}, {.lse = true});
    for (const std::int64_t queries : {20, 33, 90})
      (void)attention.forward({p.q(queries), p.k(queries), p.k(queries)});
    Tensor strange = p.k(70);
    strange.at<float>({0, 0, 60, 3}) = std::numeric_limits<float>::quiet_NaN();
    (void)attention.forward({p.q(70), p.k(70), strange});
    EXPECT_EQ(api::kernels_made(), before) << mask;
  }
}

TEST(Prepare, SparseMasksAndTheirGradients) {
  const char* mask = "q >= kv && (q - kv < 9 || (q - kv) % 37 == 0)";
  const Attention attention = compile(options_of(mask));
  const Prepared p;
  attention.prepare({p.spec(600, 600, true)});
  const std::int64_t before = api::kernels_made();
  for (const std::int64_t length : {40, 700, 1300}) {
    const Tensor q = p.q(length), k = p.k(length);
    const Forward y = attention.forward({q, k, k}, {.lse = true});
    (void)attention.backward({q, k, k}, {y.out, y.lse}, q);
  }
  EXPECT_EQ(api::kernels_made(), before);
}

TEST(Prepare, BadShapesAreRefused) {
  const Attention attention = compile({});
  const Prepared p;
  CallSpec bad = p.spec(1, 10);
  bad.k.shape[3] = 8;
  EXPECT_THROW(attention.prepare({p.spec(1, 10), bad}), Error);
}

TEST(Prepare, CallsWithoutRowsNeedNothing) {
  const std::int64_t before = api::kernels_made();
  const Attention attention = compile(options_of("q + 40002 >= kv"));
  Prepared p;
  attention.prepare({p.spec(0, 10)});
  p.heads = p.key_heads = 0;
  attention.prepare({p.spec(1, 10)});
  EXPECT_EQ(api::kernels_made(), before);
}

TEST(Prepare, TheReferenceHasNothingToPrepare) {
  Options options;
  options.backend = Backend::reference;
  compile(options).prepare({Prepared().spec(1, 10)});
}

}  // namespace
}  // namespace treadle
