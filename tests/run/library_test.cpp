// The score mods and masks that people use, with the layouts that a call chooses for them.
#include <gtest/gtest.h>

#include "close.h"
#include "fuzz.h"
#include "placed.h"
#include "treadle/patterns.h"

namespace treadle {
namespace {

using test::ForwardRun;
using test::mods_of;
using test::Random;
using test::Rows;

struct Shape {
  std::int64_t batch = 2, heads = 4, key_heads = 2, queries = 96, keys = 96, dim = 16;
};

void expect_definition(const ScoreMod& score_mod, const MaskMod& mask, const Shape& s = {},
                       DType type = DType::f32) {
  Random random = test::rng(static_cast<std::uint64_t>(s.queries * 7 + s.keys));
  Tensor q(type, {s.batch, s.heads, s.queries, s.dim});
  Tensor k(type, {s.batch, s.key_heads, s.keys, s.dim});
  Tensor v(type, {s.batch, s.key_heads, s.keys, s.dim});
  test::fill_eighths(random, q);
  test::fill_eighths(random, k);
  test::fill_reals(random, v);
  const ForwardRun run(mods_of(score_mod, mask));
  const Rows got = run({q, k, v}, 0.25);
  test::Compared compared;
  expect_close(got, run.reference({q, k, v}, 0.25, DType::f32),
               run.reference({q, k, v}, 0.25, DType::f64), compared);
  EXPECT_EQ(compared.skipped, 0);
  const Layout plain = run.passes({s.batch, s.heads, s.queries, s.keys}, {}, 24);
  EXPECT_TRUE(same_rows(run({q, k, v}, 0.25, plain, tbb_executor(3)), got));
}

struct Named {
  const char* name;
  ScoreMod mod;

  friend void PrintTo(const Named& mod, std::ostream* out) { *out << mod.name; }
};

// Those that FlexAttention's own tests begin with, and some more of its kinds.
std::vector<Named> score_mods() {
  constexpr double hidden = -std::numeric_limits<double>::infinity();
  const auto slopes = std::make_shared<Tensor>(DType::f32, Dims{4});
  const auto table = std::make_shared<Tensor>(DType::f32, Dims{4, 17});
  for (std::size_t h = 0; h < 4; ++h)
    slopes->data<float>()[h] = std::exp2(-2.0f * static_cast<float>(h + 1));
  for (std::size_t i = 0; i < 68; ++i) table->data<float>()[i] = std::sin(static_cast<float>(i));
  using S = const Score&;
  using I = const Index&;
  return {
      {"identity", {}},
      {"times_two", [](S s, I, I, I, I) { return s * 2; }},
      {"squared", [](S s, I, I, I, I) { return s * s; }},
      {"causal", [=](S s, I, I, I q, I kv) { return where(q >= kv, s, hidden); }},
      {"inverse_causal", [=](S s, I, I, I q, I kv) { return where(q <= kv, s, hidden); }},
      {"relative_bias", [](S s, I, I, I q, I kv) { return s + (q - kv); }},
      {"relative_causal",
       [=](S s, I, I, I q, I kv) { return where(q >= kv, s + (q - kv), hidden); }},
      {"alibi", [](S s, I, I h, I q, I kv) { return s + exp2(-(h + 1) * 8.0 / 4.0) * (kv - q); }},
      {"trigonometric", [](S s, I b, I, I, I) { return sin(cos(s)) + tan(b); }},
      {"alibi_of_slopes", mods::alibi(Capture("slopes", std::shared_ptr<const Tensor>(slopes)))},
      {"relative_table",
       mods::relative_bias(Capture("table", std::shared_ptr<const Tensor>(table)), 8)},
      {"soft_cap", mods::soft_cap(3)},
      {"chain",
       mods::chain(mods::soft_cap(3),
                   mods::alibi(Capture("slopes", std::shared_ptr<const Tensor>(slopes))))}};
}

class ScoreMods : public testing::TestWithParam<Named> {};
INSTANTIATE_TEST_SUITE_P(Library, ScoreMods, testing::ValuesIn(score_mods()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(ScoreMods, LikeTheDefinition) {
  for (const DType type : {DType::f32, DType::f64, DType::bf16}) {
    expect_definition(GetParam().mod, {}, {}, type);
    expect_definition(GetParam().mod, mods::causal(), {.queries = 50, .keys = 77}, type);
  }
  expect_definition(GetParam().mod, mods::window(9),
                    {.heads = 4, .key_heads = 1, .queries = 31, .keys = 130});
}

struct NamedMask {
  const char* name;
  MaskMod mask;
  Shape shape = {};

  friend void PrintTo(const NamedMask& mask, std::ostream* out) { *out << mask.name; }
};

std::vector<NamedMask> masks() {
  const auto owned = [](DType type, const std::vector<std::int64_t>& values) {
    auto tensor = std::make_shared<Tensor>(type, Dims{static_cast<std::int64_t>(values.size())});
    for (std::size_t i = 0; i < values.size(); ++i)
      base::store_int(tensor->view().data(), type, static_cast<std::int64_t>(i), values[i]);
    return std::shared_ptr<const Tensor>(tensor);
  };
  std::vector<std::int64_t> ids, global;
  for (std::int64_t i = 0; i < 96; ++i) {
    ids.push_back(i * i / 900);
    global.push_back(i % 31 == 5 ? 1 : 0);
  }
  const Shape decode{.queries = 5, .keys = 105};
  using namespace patterns;
  return {
      {"causal", mods::causal()},
      {"causal_lower_right", mods::causal_lower_right(5, 105), decode},
      {"window", mods::window(7)},
      {"window_of_a_capture", mods::window(Capture("size", 11))},
      {"prefix_lm_mod", mods::prefix_lm(Capture("prefix", owned(DType::i32, {5, 40})))},
      {"document", mods::document(Capture("ids", owned(DType::i64, ids)))},
      {"padding", mods::padding(Capture("lengths", owned(DType::i32, {96, 13})))},
      {"dilated", mods::dilated(5)},
      {"not_window", !mods::window(20)},
      {"and_or", (mods::causal() & mods::window(10)) | mods::dilated(16)},
      {"sliding_window", sliding_window({.window = 12, .sinks = 3})},
      {"dilated_window", dilated_window({.window = 6, .dilation = 4}) & mods::causal()},
      {"longformer",
       longformer({.reach = 4, .global = Capture("global", owned(DType::boolean, global))})},
      {"bigbird", bigbird({.length = 96, .heads = 4, .block_size = 8, .random = 2, .seed = 7})},
      {"neighborhood_1d", neighborhood({{.length = 96, .window = 9, .dilation = 2}})},
      {"neighborhood_2d", neighborhood({{.length = 8, .window = 3}, {.length = 12, .window = 5}})},
      {"neighborhood_3d", neighborhood({{.length = 4, .window = 3, .causal = true},
                                        {.length = 4, .window = 2},
                                        {.length = 6, .window = 3}})},
      {"block_diagonal", block_diagonal({.size = 20})},
      {"documents", documents({.lengths = {10, 1, 50, 35}}) & mods::causal()},
      {"jagged",
       jagged({.query_ends = {0, 10, 40, 96},
               .key_ends = {0, 30, 31, 105},
               .inner = mods::causal(),
               .align = Jagged::Align::last}),
       {.queries = 96, .keys = 105}},
      {"prefix_lm", patterns::prefix_lm({.lengths = {30, 0}})},
      {"tree", tree({.parents = {-1, 0, 0, 1, 3}, .context = Capture("context", 100)}), decode},
      {"all", all()},
      {"local", local({.window = 16})},
      {"strided", strided({.stride = 16})},
      {"local_or_strided", local({.window = 16}) | strided({.stride = 16})},
      {"fixed", fixed({.window = 32, .num_verts = 4}, {.size = 8, .heads = 4})},
      {"conv", conv({.height = 8, .width = 12, .filter_height = 3, .filter_width = 3})},
      {"conv_stride",
       conv({.height = 8,
             .width = 12,
             .filter_height = 4,
             .filter_width = 4,
             .stride = 2,
             .autoregressive = false}),
       {.queries = 24, .keys = 96}},
      {"deconv",
       deconv({.height = 8, .width = 12, .filter_height = 3, .filter_width = 3, .stride = 2}),
       {.queries = 96, .keys = 24}},
      {"autoregress_at_key",
       autoregress_at_key(all() | block_diagonal({.size = 48}), Capture("key", 20), 96)},
      {"sparse_attention", sparse_attention({.attn_mode = "fixed",
                                             .n_ctx = 96,
                                             .heads = 4,
                                             .blocksize = 8,
                                             .local_attn_ctx = 32,
                                             .num_verts = 4,
                                             .vertsize = 1})}};
}

class Masks : public testing::TestWithParam<NamedMask> {};
INSTANTIATE_TEST_SUITE_P(Library, Masks, testing::ValuesIn(masks()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Masks, LikeTheDefinition) {
  expect_definition({}, GetParam().mask, GetParam().shape);
  expect_definition(parse("score + float(kv - q) / 16.0"), GetParam().mask, GetParam().shape,
                    DType::f16);
}

}  // namespace
}  // namespace treadle
