// Call::q_offsets and Call::kv_offsets: rows at any position of their sequences have the bits that they
// have in the whole sequence, and batch entries at different positions those of calls of their own.
#include "api/positions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "api/inspect.h"
#include "base/copy.h"
#include "expect_error.h"
#include "plain_attention.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

using test::random_tensor;
using test::same_bits;

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// Entry b, rows begin .. end of a tensor, as a tensor of their own.
Tensor rows(const Tensor& from, std::int64_t b, std::int64_t begin, std::int64_t end) {
  return base::convert(api::rows_of(ConstView(from), {b, b + 1}, {begin, end}), from.dtype());
}

struct Sequence {
  Tensor q, k, v;

  Sequence(std::uint64_t seed, std::int64_t batch, std::int64_t length, DType type = DType::f32)
      : q(random_tensor(seed, type, {batch, 4, length, 16})),
        k(random_tensor(seed + 1, type, {batch, 2, length, 16})),
        v(random_tensor(seed + 2, type, {batch, 2, length, 16})) {}
};

// Everything a mod can see.
Options positioned() {
  Options options;
  options.score_mod = parse("score + 0.01 * (kv - q) + 0.1 * h + 0.2 * b");
  options.mask = patterns::sliding_window({.window = 700, .sinks = 4});
  return options;
}

const Call all_rows{.lse = true, .max = true};

void expect_rows(const Forward& seen, const Forward& whole, std::int64_t b, std::int64_t begin,
                 std::int64_t end) {
  EXPECT_TRUE(same_bits(seen.out, rows(whole.out, b, begin, end)));
  EXPECT_TRUE(same_bits(seen.lse, rows(whole.lse, b, begin, end)));
  EXPECT_TRUE(same_bits(seen.max, rows(whole.max, b, begin, end)));
}

// A mask of two terms, and a score mod that reads a table.
Options united(const Tensor& bias) {
  Options options;
  options.score_mod = parse("score + bias[kv] - 0.01 * bias[q]", {{"bias", bias}});
  options.mask = parse("kv <= q && (q - kv < 64 || (q - kv) % 64 == 0)");
  return options;
}

TEST(Positions, StepsHaveTheBitsOfTheWhole) {
  const Tensor bias = random_tensor(11, DType::f32, {1500});
  for (const Options& options : {positioned(), united(bias)}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      const Sequence all(1, 1, 1500, type);
      const Attention attention = compile(options);
      const Forward whole = attention.forward({all.q, all.k, all.v}, all_rows);
      for (const auto& [past, count] : {std::pair<std::int64_t, std::int64_t>{0, 1},
                                        {5, 1},
                                        {1023, 1},
                                        {1024, 4},
                                        {1499, 1},
                                        {1300, 16},
                                        {1000, 150},
                                        {1025, 300}}) {
        SCOPED_TRACE(past);
        Call call = all_rows;
        call.q_offsets = {past};
        const std::int64_t end = past + count;
        const Tensor q = rows(all.q, 0, past, end), k = rows(all.k, 0, 0, end),
                     v = rows(all.v, 0, 0, end);
        expect_rows(attention.forward({q, k, v}, call), whole, 0, past, end);
      }
    }
  }
}

// Keys that no query sees any more have been dropped.
TEST(Positions, RolledCachesKeepTheirBits) {
  const Sequence all(4, 1, 2500);
  Options options = positioned();
  options.mask = patterns::sliding_window({.window = 300});
  const Attention attention = compile(options);
  const Forward whole = attention.forward({all.q, all.k, all.v}, all_rows);
  for (const std::int64_t dropped : {1, 700, 1030, 2100}) {
    Call call = all_rows;
    call.q_offsets = {2400};
    call.kv_offsets = {dropped};
    const Tensor q = rows(all.q, 0, 2400, 2450), k = rows(all.k, 0, dropped, 2450),
                 v = rows(all.v, 0, dropped, 2450);
    expect_rows(attention.forward({q, k, v}, call), whole, 0, 2400, 2450);
    expect_rows(
        attention.forward({rows(q, 0, 49, 50), k, v},
                          {.lse = true, .max = true, .q_offsets = {2449}, .kv_offsets = {dropped}}),
        whole, 0, 2449, 2450);
  }
}

// Sequences of different lengths, each at the end of its rows.
struct LeftPadded {
  std::vector<std::int64_t> lengths{900, 1200, 350, 0};
  std::int64_t longest = 1200;
  Sequence all{7, 4, longest};
  Call call = all_rows;

  LeftPadded() {
    for (const std::int64_t length : lengths) call.q_offsets.push_back(length - longest);
    call.kv_offsets = call.q_offsets;
  }
  [[nodiscard]] Inputs inputs() const { return {all.q, all.k, all.v}; }
};

TEST(Positions, LeftPaddedBatchesHaveTheBitsOfTheirSequences) {
  const LeftPadded padded;
  Options options = positioned();
  options.score_mod = parse("score + 0.01 * (kv - q) + 0.1 * h");
  const Attention attention = compile(options);
  const Forward y = attention.forward(padded.inputs(), padded.call);
  for (std::int64_t b = 0; b < 4; ++b) {
    SCOPED_TRACE(b);
    const std::int64_t pad = -padded.call.q_offsets[static_cast<std::size_t>(b)];
    const std::int64_t end = padded.longest;
    const Tensor q = rows(padded.all.q, b, pad, end), k = rows(padded.all.k, b, pad, end),
                 v = rows(padded.all.v, b, pad, end);
    const Forward own = attention.forward({q, k, v}, all_rows);
    EXPECT_TRUE(same_bits(rows(y.out, b, pad, end), own.out));
    EXPECT_TRUE(same_bits(rows(y.lse, b, pad, end), own.lse));
    EXPECT_TRUE(same_bits(rows(y.max, b, pad, end), own.max));
    const Tensor padding = rows(y.out, b, 0, pad), lse = rows(y.lse, b, 0, pad);
    for (const float x : padding.data<float>()) ASSERT_EQ(x, 0);
    for (const float x : lse.data<float>()) ASSERT_EQ(x, minus_infinity);
  }
}

// A captured table as long as the sequence, which padding would read outside of.
TEST(Positions, ModsDoNotSeePadding) {
  const LeftPadded padded;
  const Tensor ids(DType::i32, {padded.longest});
  Options options;
  options.mask = mods::document(Capture("ids", ids.view())) & mods::causal();
  EXPECT_NO_THROW((void)compile(options).forward(padded.inputs(), padded.call));
  Options dense = options;
  dense.backend = Backend::reference;
  EXPECT_LT(test::largest_difference(compile(options).forward(padded.inputs(), padded.call).out,
                                     compile(dense).forward(padded.inputs(), padded.call).out),
            1e-5);
}

// A batch of sequences that are decoded, each from its own position on.
TEST(Positions, EntriesAtDifferentPositions) {
  const std::vector<std::int64_t> past{99, 1400, 0, 800, 800};
  const Sequence all(11, 5, 1500);
  const Tensor sinks = random_tensor(20, DType::f32, {4});
  for (const std::int64_t count : {1, 4, 60}) {
    Tensor q(DType::f32, {5, 4, count, 16});
    base::copy(q.view(), random_tensor(static_cast<std::uint64_t>(count), DType::f32, q.shape()));
    Call call = all_rows;
    call.q_offsets = past;
    call.sinks = sinks;
    const Attention attention = compile(positioned());
    const Forward y = attention.forward({q, all.k, all.v}, call);
    Options dense = positioned();
    dense.backend = Backend::reference;
    const Forward expected = compile(dense).forward({q, all.k, all.v}, call);
    EXPECT_LT(test::largest_difference(y.out, expected.out), 1e-5);
    EXPECT_LT(test::largest_difference(y.lse, expected.lse), 1e-5);
    EXPECT_LT(test::largest_difference(y.max, expected.max), 1e-5);
  }
}

TEST(Positions, NothingButPadding) {
  const Sequence all(1, 2, 30);
  const Attention attention = compile(positioned());
  Call call = all_rows;
  call.q_offsets = {100};
  call.kv_offsets = {-30, -29};
  const Forward y = attention.forward({all.q, all.k, all.v}, call);
  const Tensor none = rows(y.out, 0, 0, 30), lse = rows(y.lse, 0, 0, 30);
  for (const float x : none.data<float>()) ASSERT_EQ(x, 0);
  for (const float x : lse.data<float>()) ASSERT_EQ(x, minus_infinity);
  // The other entry has one key, at position 0.
  for (std::int64_t d = 0; d < 16; ++d)
    EXPECT_NEAR(y.out.at<float>({1, 0, 3, d}), all.v.at<float>({1, 0, 29, d}), 1e-6);
  const Tensor dout = random_tensor(9, DType::f32, all.q.shape());
  const Backward g = attention.backward({all.q, all.k, all.v}, {y.out, y.lse}, dout, {}, call);
  for (std::int64_t n = 0; n < 29; ++n) EXPECT_EQ(g.dv.at<float>({1, 0, n, 0}), 0);
  EXPECT_NE(g.dv.at<float>({1, 0, 29, 0}), 0);
}

// Gradients, also of captures and of keys that all entries share, against the reference.
class PositionsBackward : public testing::TestWithParam<std::int64_t> {};

TEST_P(PositionsBackward, AddUpOverEntries) {
  const std::int64_t key_batch = GetParam(), queries = 90, keys = 130;
  const DType type = DType::f64;
  const Tensor q = random_tensor(1, type, {3, 4, queries, 8}),
               k = random_tensor(2, type, {key_batch, 2, keys, 8}),
               v = random_tensor(3, type, {key_batch, 2, keys, 8}),
               dout = random_tensor(4, type, {3, 4, queries, 8}),
               dlse = random_tensor(5, type, {3, 4, queries}),
               slope = random_tensor(6, DType::f32, {4}), bias = random_tensor(7, type, {400}),
               sinks = random_tensor(8, type, {4});
  Options options;
  options.score_mod = parse("score + slope[h] * (kv - q) * 0.01 + bias[kv] * (b + 1)",
                            {{"slope", slope}, {"bias", bias}});
  options.mask = parse("kv <= q && q - kv < 100");
  options.gradients = {"slope", "bias"};
  Call call{.lse = true};
  call.q_offsets = {60, -7, 200};
  call.kv_offsets = {20, -7, 150};
  call.sinks = sinks;
  std::vector<Backward> done;
  for (const Backend backend : {Backend::cpu, Backend::reference}) {
    for (const Save save : {Save::lse, Save::nothing}) {
      options.backend = backend;
      options.save = save;
      const Attention attention = compile(options);
      const Forward y = attention.forward({q, k, v}, call);
      const Saved saved = save == Save::lse ? Saved{y.out, y.lse} : Saved{};
      done.push_back(attention.backward({q, k, v}, saved, dout, dlse.view(), call));
    }
  }
  for (std::size_t i = 0; i + 1 < done.size(); ++i) {
    EXPECT_LT(test::largest_difference(done[i].dq, done.back().dq), 1e-10);
    EXPECT_LT(test::largest_difference(done[i].dk, done.back().dk), 1e-10);
    EXPECT_LT(test::largest_difference(done[i].dv, done.back().dv), 1e-10);
    EXPECT_LT(test::largest_difference(done[i].of("slope"), done.back().of("slope")), 1e-4);
    EXPECT_LT(test::largest_difference(done[i].of("bias"), done.back().of("bias")), 1e-10);
    EXPECT_LT(test::largest_difference(done[i].dsinks, done.back().dsinks), 1e-10);
  }
  // By hand, through masks that know where entries stand.
  options.backend = Backend::reference;
  options.save = Save::lse;
  Tensor q_at(DType::i64, {3}), kv_at(DType::i64, {3});
  for (std::int64_t b = 0; b < 3; ++b) {
    q_at.at<std::int64_t>({b}) = call.q_offsets[static_cast<std::size_t>(b)];
    kv_at.at<std::int64_t>({b}) = call.kv_offsets[static_cast<std::size_t>(b)];
  }
  const std::vector<Capture> tables{{"slope", slope}, {"bias", bias}, {"q0", q_at}, {"kv0", kv_at}};
  options.score_mod = parse(
      "score + slope[h] * (kv + kv0[b] - q - q0[b]) * 0.01 + bias[max(kv + kv0[b], 0)] * (b + 1)",
      tables);
  options.mask = parse(
      "kv + kv0[b] >= 0 && q + q0[b] >= 0 && kv + kv0[b] <= q + q0[b] && "
      "q + q0[b] - kv - kv0[b] < 100",
      tables);
  const Attention by_hand = compile(options);
  Call plain{.lse = true};
  plain.sinks = sinks;
  const Forward y = by_hand.forward({q, k, v}, plain);
  const Backward expected = by_hand.backward({q, k, v}, {y.out, y.lse}, dout, dlse.view(), plain);
  EXPECT_LT(test::largest_difference(done.back().dq, expected.dq), 1e-10);
  EXPECT_LT(test::largest_difference(done.back().dk, expected.dk), 1e-10);
  EXPECT_LT(test::largest_difference(done.back().dv, expected.dv), 1e-10);
  EXPECT_LT(test::largest_difference(done.back().of("bias"), expected.of("bias")), 1e-10);
  EXPECT_LT(test::largest_difference(done.back().dsinks, expected.dsinks), 1e-10);
}

INSTANTIATE_TEST_SUITE_P(Keys, PositionsBackward, testing::Values(1, 3));

// Borders of sums count from position 0, so only the order of additions may differ.
TEST(Positions, BackwardFarFromTheStart) {
  const Sequence all(1, 1, 200);
  const Tensor dout = random_tensor(9, DType::f32, all.q.shape());
  const Attention causal = compile({.mask = parse("kv <= q && q - kv < 150")});
  const auto gradients = [&](std::int64_t q, std::int64_t kv) {
    Call call{.lse = true};
    call.q_offsets = {q};
    call.kv_offsets = {kv};
    const Forward y = causal.forward({all.q, all.k, all.v}, call);
    return causal.backward({all.q, all.k, all.v}, {y.out, y.lse}, dout, {}, call);
  };
  const Backward near = gradients(100, 0), far = gradients(1000000, 999900);
  EXPECT_LT(test::largest_difference(near.dq, far.dq), 1e-5);
  EXPECT_LT(test::largest_difference(near.dk, far.dk), 1e-5);
  EXPECT_LT(test::largest_difference(near.dv, far.dv), 1e-5);
}

TEST(Positions, SharedKeysInSixteenBitsRoundOnce) {
  const Tensor q = random_tensor(1, DType::bf16, {2, 2, 40, 8}),
               k = random_tensor(2, DType::bf16, {1, 2, 80, 8}),
               v = random_tensor(3, DType::bf16, {1, 2, 80, 8}),
               dout = random_tensor(4, DType::bf16, {2, 2, 40, 8});
  const Attention causal = compile({.mask = mods::causal()});
  Call call{.lse = true};
  call.q_offsets = {10, 40};
  const Forward y = causal.forward({q, k, v}, call);
  const Backward g = causal.backward({q, k, v}, {y.out, y.lse}, dout, {}, call);
  EXPECT_EQ(g.dk.dtype(), DType::bf16);
  Options dense{.mask = mods::causal(), .backend = Backend::reference};
  const Backward expected = compile(dense).backward({q, k, v}, {y.out, y.lse}, dout, {}, call);
  EXPECT_LT(test::largest_difference(g.dk, expected.dk), 0.02);
}

TEST(Positions, LayoutsAreForTheirPositions) {
  const Sequence all(1, 2, 300);
  const Attention attention = compile(positioned());
  Call call = all_rows;
  call.q_offsets = {500};
  call.kv_offsets = {300, 300};
  const Inputs inputs{all.q, all.k, all.v};
  const Forward expected = attention.forward(inputs, call);
  Call with_layout = call;
  with_layout.layout = attention.layout(inputs, call);
  EXPECT_TRUE(same_bits(attention.forward(inputs, with_layout).out, expected.out));
  with_layout.kv_offsets = {299};
  EXPECT_ERROR(attention.forward(inputs, with_layout),
               "forward: the layout is for queries from position 500 and keys from 300, the call's "
               "begin at 500 and 299; they must be equal");
  with_layout.kv_offsets = {300, 301};
  EXPECT_ERROR(attention.forward(inputs, with_layout),
               "forward: batch entries 0 and 1 have different offsets; a layout is for one offset "
               "of all");
  EXPECT_ERROR(
      (void)attention.layout(inputs, with_layout),
      "layout: batch entries 0 and 1 have different offsets; a layout is for one offset of "
      "all");
}

TEST(Positions, BadOffsetsAreRefused) {
  const Sequence all(1, 3, 20);
  const Attention attention = compile(positioned());
  const Inputs inputs{all.q, all.k, all.v};
  const auto with = [](std::vector<std::int64_t> q, std::vector<std::int64_t> kv) {
    return Call{.q_offsets = std::move(q), .kv_offsets = std::move(kv)};
  };
  EXPECT_ERROR(
      attention.forward(inputs, with({1, 2}, {})),
      "forward: there are 2 q_offsets, the batch is 3; there must be one for each entry, or "
      "one for all");
  EXPECT_ERROR(attention.forward(inputs, with({}, {0, 0, 2147483647})),
               "forward: kv_offsets holds 2147483647, there are 20 rows; positions are between "
               "-2147483647 and 2147483647");
  EXPECT_ERROR(attention.forward(inputs, with({-2147483648LL}, {})),
               "forward: q_offsets holds -2147483648, there are 20 rows; positions are between "
               "-2147483647 and 2147483647");
  EXPECT_NO_THROW((void)attention.forward(inputs, with({2147483627}, {2147483000})));
  EXPECT_NO_THROW((void)attention.forward(inputs, with({-2147483647}, {-5})));
  EXPECT_ERROR(attention.block_lists({}, inputs, with({5}, {})),
               "block_lists: the call has an offset of 5; blocks count rows, not positions");
  const Tensor none(DType::i32, {1, 1, 20, 0});
  EXPECT_ERROR(attention.layout(KeyLists{1, 1, none}, inputs, with({}, {0, 0, 7})),
               "layout: the call has an offset of 7; lists of keys count rows, not positions");
}

// Nothing is written when the second entry's mod reads outside of its table.
TEST(Positions, ACallThatFailsWritesNothing) {
  const Sequence all(1, 2, 50);
  const Tensor table = random_tensor(5, DType::f32, {60});
  Options options;
  options.score_mod = parse("score + table[q]", {{"table", table}});
  const Attention attention = compile(options);
  Tensor out(DType::f32, all.q.shape());
  for (float& x : out.data<float>()) x = 7;
  EXPECT_ERROR(attention.forward_into({out.view()}, {all.q, all.k, all.v}, {.q_offsets = {10, 11}}),
               "score mod: table: index 60 along dimension 0 is outside its length 60, at (b 1, h "
               "0, q 60, kv 0)");
  for (const float x : out.data<float>()) ASSERT_EQ(x, 7);
}

TEST(Positions, ResultsMayLieOverInputs) {
  Sequence all(1, 2, 50);
  const Attention causal = compile({.mask = mods::causal()});
  const Call call{.q_offsets = {10, 20}};
  const Tensor expected = causal.forward({all.q, all.k, all.v}, call).out;
  causal.forward_into({all.q.view()}, {all.q, all.k, all.v}, call);
  EXPECT_TRUE(same_bits(all.q, expected));
}

TEST(Positions, NewOnesNeedNoNewKernels) {
  const Sequence all(1, 2, 3000);
  const Attention attention = compile(positioned());
  const Tensor q = random_tensor(3, DType::f32, {2, 4, 1, 16});
  const auto step = [&](std::int64_t past) {
    (void)attention.forward({q, all.k, all.v}, {.q_offsets = {past, past - 40}});
  };
  step(2500);
  const std::int64_t made = api::kernels_made();
  for (const std::int64_t past : {2501, 2502, 2999, 700, 41}) step(past);
  EXPECT_EQ(api::kernels_made(), made);
}

}  // namespace
}  // namespace treadle
