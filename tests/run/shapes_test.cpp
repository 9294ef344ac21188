// Every head dim, every mixture of types, lengths at the edges of tiles, blocks and chunks, and
// heads that share keys.
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "close.h"
#include "fuzz.h"
#include "placed.h"

namespace treadle {
namespace {

using test::ForwardRun;
using test::mods_of;
using test::Random;
using test::Rows;

struct ShapeSpec {
  std::int64_t batch = 1, heads = 2, key_batch = 1, key_heads = 2, queries = 30, keys = 70, dim = 8,
               value_dim = 8;
  DType q = DType::f32, k = DType::f32, v = DType::f32;
};

// As the definition has it in f64, in the layout that a call would choose and in another one.
void expect_definition(const ForwardRun& run, const ShapeSpec& s, std::uint64_t seed) {
  SCOPED_TRACE(fmt::format("q {} [{}, {}, {}, {}], k {} [{}, {}, {}], v {} {}", name_of(s.q),
                           s.batch, s.heads, s.queries, s.dim, name_of(s.k), s.key_batch,
                           s.key_heads, s.keys, name_of(s.v), s.value_dim));
  Random random = test::rng(seed);
  Tensor q(s.q, {s.batch, s.heads, s.queries, s.dim});
  Tensor k(s.k, {s.key_batch, s.key_heads, s.keys, s.dim});
  Tensor v(s.v, {s.key_batch, s.key_heads, s.keys, s.value_dim});
  test::fill_eighths(random, q);
  test::fill_eighths(random, k);
  test::fill_reals(random, v);
  const double scale = 1 / std::sqrt(static_cast<double>(s.dim));
  const Rows got = run({q, k, v}, scale);
  test::Compared compared;
  expect_close(got, run.reference({q, k, v}, scale, DType::f32),
               run.reference({q, k, v}, scale, DType::f64), compared);
  const layout::Layout other = run.build({s.batch, s.heads, s.queries, s.keys}, {}, 24);
  EXPECT_TRUE(same_rows(run({q, k, v}, scale, other, *tbb_executor(2)), got));
}

std::vector<std::int64_t> all_dims() {
  std::vector<std::int64_t> dims;
  for (std::int64_t dim = 1; dim <= 40; ++dim) dims.push_back(dim);
  for (const std::int64_t dim : {48,  63,  64,  65,  72,  80,  96,  100, 112, 127, 128, 129,
                                 160, 192, 200, 255, 256, 257, 320, 384, 400, 511, 512})
    dims.push_back(dim);
  return dims;
}

// Queries and values have different dims, and each dim is once that of either. One whole tile, so
// that each pair of dims needs one kernel, or two with a mask.
TEST(ForwardShapes, EveryHeadDim) {
  const ForwardRun all(mods_of({}, {}));
  const ForwardRun causal(mods_of({}, mods::causal_lower_right(24, 70)));
  const std::vector<std::int64_t> dims = all_dims();
  ASSERT_EQ(std::gcd(dims.size(), 20U), 1U) << "else some dims have no seed";
  // Each dim takes kernels of its own. Neighbouring seeds are dims far from each other.
  for (int round = 0; round < test::fuzz_count(static_cast<int>(dims.size())); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    const std::size_t i = seed % dims.size() * 20 % dims.size();
    const std::int64_t value_dim = dims[(i * 37 + 11) % dims.size()];
    expect_definition(i % 4 == 0 ? causal : all,
                      {.queries = 24, .dim = dims[i], .value_dim = value_dim}, i);
    if (HasFatalFailure()) return;
  }
}

TEST(ForwardShapes, HeadDimsOfOtherTypes) {
  const ForwardRun run(mods_of({}, {}));
  std::uint64_t seed = 0;
  for (const DType type : {DType::f64, DType::bf16, DType::f16}) {
    for (const std::int64_t dim : {1, 3, 15, 17, 64, 130, 512}) {
      const ShapeSpec spec{
          .queries = 24, .dim = dim, .value_dim = dim % 7 + 1, .q = type, .k = type, .v = type};
      expect_definition(run, spec, ++seed);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(ForwardShapes, EveryMixtureOfTypes) {
  const ForwardRun run(
      mods_of(parse("score + float(kv - q) * 0.0625"), parse("(q + kv) % 3 != 0")));
  constexpr std::array types{DType::f64, DType::f32, DType::bf16, DType::f16};
  std::uint64_t seed = 0;
  for (const DType q : types) {
    for (const DType k : types) {
      for (const DType v : types) {
        expect_definition(run, {.q = q, .k = k, .v = v}, ++seed);
        if (HasFatalFailure()) return;
      }
    }
  }
}

class Lengths : public testing::TestWithParam<const char*> {};

std::string name_of_mask(const testing::TestParamInfo<const char*>& info) {
  constexpr std::array names{"all", "causal", "same_parity", "later"};
  return names.at(info.index);
}

INSTANTIATE_TEST_SUITE_P(Masks, Lengths,
                         testing::Values("true", "q >= kv", "q % 2 == kv % 2", "kv > q"),
                         name_of_mask);

TEST_P(Lengths, AtTheEdges) {
  const ForwardRun run(mods_of({}, parse(GetParam())));
  std::uint64_t seed = 0;
  for (const std::int64_t queries : {0, 1, 2, 7, 8, 9, 16, 23, 24, 25, 47, 48, 49, 100}) {
    for (const std::int64_t keys : {0, 1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 200}) {
      expect_definition(run, {.queries = queries, .keys = keys, .dim = 5, .value_dim = 3}, ++seed);
      if (HasFatalFailure()) return;
    }
  }
  for (const std::int64_t keys : {1023, 1024, 1025, 2048, 2500})
    expect_definition(run, {.queries = 26, .keys = keys, .dim = 5, .value_dim = 3}, ++seed);
}

TEST(ForwardShapes, HeadsThatShareKeys) {
  const ForwardRun run(mods_of(parse("score * (1.0 + float(h) / 8.0) + float(b)"),
                               parse("(q + h * 3 + b) % 4 >= kv % 4")));
  std::uint64_t seed = 0;
  for (const std::int64_t key_heads : {1, 2, 3, 5}) {
    for (const std::int64_t group : {1, 2, 3, 8, 13}) {
      for (const std::int64_t key_batch : {1, 3}) {
        expect_definition(run,
                          {.batch = 3,
                           .heads = key_heads * group,
                           .key_batch = key_batch,
                           .key_heads = key_heads,
                           .queries = 13,
                           .keys = 40},
                          ++seed);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Ends of sequences of 2^16 keys, where chunks become longer.
TEST(ForwardShapes, ManyKeys) {
  const ForwardRun run(mods_of({}, parse("kv % 5 == q % 5")));
  for (const std::int64_t keys : {65535, 65536, 65537, 140000}) {
    expect_definition(
        run, {.heads = 1, .key_heads = 1, .queries = 6, .keys = keys, .dim = 3, .value_dim = 2}, 1);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace treadle
