// Sequences of different lengths in one call have the bits of calls of their own, whether their keys
// are packed or lie in pages.
#include "treadle/sequences.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "fuzz.h"
#include "sequence_batch.h"

namespace treadle {
namespace {

using test::Lengths;
using test::PagedBatch;
using test::random_tensor;
using test::same_bits;
using test::SequenceBatch;

const Call with_rows{.lse = true, .max = true};

// What a call of its own gives sequence s, which is batch entry s there, too.
Forward alone(const Attention& attention, const SequenceBatch& batch, std::size_t s,
              const Call& call) {
  const SequenceBatch::One& one = batch.all[s];
  const auto entries = static_cast<std::int64_t>(s) + 1;
  Dims shape = one.q.shape();
  shape[0] = entries;
  Tensor q(one.q.dtype(), shape);
  const auto repeated = [&](const ConstView& view) {
    Dims strides = view.strides();
    strides[0] = 0;
    Dims all = view.shape();
    all[0] = entries;
    return ConstView(view.data(), view.dtype(), all, strides);
  };
  Call own = call;
  own.q_offsets = {one.k.size(2) - one.q.size(2)};
  const Forward all = attention.forward({repeated(one.q), one.k, one.v}, own);
  const auto last = [&](const Tensor& tensor) {
    const ConstView view = tensor;
    Dims shape = view.shape();
    shape[0] = 1;
    const auto* data =
        static_cast<const std::byte*>(view.data()) +
        (entries - 1) * view.stride(0) * static_cast<std::int64_t>(size_of(view.dtype()));
    return base::convert(ConstView(data, view.dtype(), shape, view.strides()), view.dtype());
  };
  return {last(all.out), last(all.lse), last(all.max)};
}

void expect_alone(const Attention& attention, const SequenceBatch& batch, const Forward& seen,
                  const Call& call, const char* what) {
  for (std::size_t s = 0; s < batch.all.size(); ++s) {
    const Forward own = alone(attention, batch, s, call);
    EXPECT_TRUE(same_bits(batch.result(seen.out, s), own.out)) << what << ", sequence " << s;
    EXPECT_TRUE(same_bits(batch.result(seen.lse, s), own.lse)) << what << ", sequence " << s;
    EXPECT_TRUE(same_bits(batch.result(seen.max, s), own.max)) << what << ", sequence " << s;
  }
}

std::vector<Lengths> random_lengths(std::mt19937_64& random) {
  std::vector<Lengths> lengths(random() % 7);
  for (Lengths& one : lengths) {
    constexpr std::int64_t most[] = {3, 40, 200, 1100, 2300};
    one.keys = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most[random() % 5]));
    const std::int64_t queries = random() % 3 == 0 ? 90 : random() % 2 == 0 ? 1 : 5;
    one.queries = std::min(one.keys, queries);
    if (random() % 8 == 0) one.queries = 0;
  }
  return lengths;
}

Options random_options(std::mt19937_64& random, const Tensor& table) {
  constexpr const char* masks[] = {"true", "kv <= q", "kv <= q && (q - kv < 50 || kv < 4)",
                                   "kv <= q && (q - kv < 16 || (q - kv) % 16 == 0)",
                                   "kv <= q && table[kv] != h"};
  constexpr const char* mods[] = {"score", "score + 0.01 * (kv - q) * (h + 1) + 0.1 * b",
                                  "tanh(score) * 3 + table[q - kv]"};
  Options options;
  const std::string mask = masks[random() % 5];
  options.mask =
      parse(mask, mask.find("table") == std::string::npos ? std::vector<Capture>{}
                                                          : std::vector<Capture>{{"table", table}});
  const std::string mod =
      mods[mask.find("kv <= q") == std::string::npos ? random() % 2 : random() % 3];
  options.score_mod =
      parse(mod, mod.find("table") == std::string::npos ? std::vector<Capture>{}
                                                        : std::vector<Capture>{{"table", table}});
  return options;
}

TEST(SequencesOfACall, HaveTheBitsOfCallsOfTheirOwn) {
  Tensor table(DType::i32, {2400});
  for (std::size_t i = 0; i < 2400; ++i)
    table.data<std::int32_t>()[i] = static_cast<std::int32_t>(i * 7 % 5);
  for (int round = 0; round < test::fuzz_count(100); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    const Attention attention = compile(random_options(random, table));
    constexpr DType types[] = {DType::f32, DType::bf16, DType::f16, DType::e4m3, DType::i8};
    const std::int64_t key_heads = 1 + static_cast<std::int64_t>(random() % 2);
    const std::int64_t heads = key_heads * (1 + static_cast<std::int64_t>(random() % 4));
    const DType key_type = types[random() % 5];
    const SequenceBatch batch(seed % 1000, random_lengths(random), heads, key_heads,
                              random() % 2 == 0 ? 16 : 20, 24,
                              {types[random() % 3], key_type, types[random() % 5]});
    Call call = with_rows;
    call.executor = tbb_executor(1 + static_cast<int>(random() % 3));
    const Tensor sinks = random_tensor(seed, DType::f32, {heads});
    if (random() % 3 == 0) call.sinks = sinks;
    const Forward packed = attention.forward(batch.packed(), call);
    expect_alone(attention, batch, packed, call, "packed");
    constexpr std::int64_t sizes[] = {1, 3, 8, 16, 20, 64, 128};
    const PagedBatch pages(batch, sizes[random() % 7],
                           random() % 2 == 0 ? PageOrder::heads_first : PageOrder::tokens_first,
                           seed);
    SCOPED_TRACE(testing::Message()
                 << name_of(batch.q.dtype()) << " " << name_of(key_type) << " "
                 << name_of(batch.v.dtype()) << ", heads " << heads << " of " << key_heads
                 << ", page " << pages.k.shape()[1] << " x " << pages.k.shape()[2]
                 << (pages.order == PageOrder::heads_first ? " heads first" : " tokens first")
                 << ", lengths " << testing::PrintToString(batch.lengths) << ", starts "
                 << testing::PrintToString(batch.q_starts) << "\n"
                 << attention.describe());
    Sequences sequences = batch.packed();
    sequences.keys = pages.keys();
    const Forward paged = attention.forward(sequences, call);
    EXPECT_TRUE(same_bits(paged.out, packed.out));
    EXPECT_TRUE(same_bits(paged.lse, packed.lse));
    EXPECT_TRUE(same_bits(paged.max, packed.max));
  }
}

// Rows before position 0 are padding: queries see nothing, and nobody sees such keys.
TEST(SequencesOfACall, MayBePadded) {
  Options options;
  options.mask = parse("kv <= q");
  const Attention attention = compile(options);
  const SequenceBatch batch(21, {{3, 10}, {4, 30}}, 2, 1, 16, 16,
                            {DType::f32, DType::f32, DType::f32});
  Call call = with_rows;
  call.q_offsets = {-2, 20};
  call.kv_offsets = {-5, -1};
  const Tensor sinks = random_tensor(1, DType::f32, {2});
  call.sinks = sinks;
  Sequences in_pages = batch.packed();
  const PagedBatch pages(batch, 4, PageOrder::heads_first, 5);
  in_pages.keys = pages.keys();
  for (const Sequences& sequences : {batch.packed(), in_pages}) {
    const Forward y = attention.forward(sequences, call);
    for (std::size_t s = 0; s < 2; ++s) {
      Call own = with_rows;
      own.q_offsets = {call.q_offsets[s]};
      own.kv_offsets = {call.kv_offsets[s]};
      own.sinks = sinks;
      const SequenceBatch::One& one = batch.all[s];
      const Forward alone = attention.forward({one.q, one.k, one.v}, own);
      EXPECT_TRUE(same_bits(batch.result(y.out, s), alone.out));
      EXPECT_TRUE(same_bits(batch.result(y.lse, s), alone.lse));
      EXPECT_TRUE(same_bits(batch.result(y.max, s), alone.max));
    }
  }
}

// NaN and infinities that a sequence sees, and those that it does not.
TEST(SequencesOfACall, KeepNansApart) {
  Options options;
  options.mask = parse("kv <= q && kv != 3");
  const Attention attention = compile(options);
  SequenceBatch batch(22, {{1, 20}, {1, 30}, {2, 25}, {20, 40}}, 2, 1, 16, 16,
                      {DType::f32, DType::f32, DType::f32});
  const float infinity = std::numeric_limits<float>::infinity();
  batch.all[0].v.at<float>({0, 0, 3, 2}) = infinity;        // hidden
  batch.all[1].v.at<float>({0, 0, 7, 2}) = infinity;        // seen
  batch.all[2].k.at<float>({0, 0, 24, 1}) = std::nanf("");  // seen by the last one
  batch.all[3].v.at<float>({0, 0, 39, 0}) = infinity;
  for (std::size_t s = 0; s < batch.all.size(); ++s) {
    SequenceBatch::pack(batch.k.view(), batch.k_starts, s, batch.all[s].k);
    SequenceBatch::pack(batch.v.view(), batch.k_starts, s, batch.all[s].v);
  }
  const Forward y = attention.forward(batch.packed(), with_rows);
  for (std::size_t s = 0; s < batch.all.size(); ++s) {
    const Forward own = alone(attention, batch, s, with_rows);
    const test::Array seen{ConstView(batch.result(y.out, s))}, wanted{ConstView(own.out)};
    for (std::size_t i = 0; i < wanted.data.size(); ++i) {
      const bool same = seen.data[i] == wanted.data[i] ||
                        (std::isnan(seen.data[i]) && std::isnan(wanted.data[i]));
      EXPECT_TRUE(same) << "sequence " << s << ", element " << i;
    }
  }
}

// A score mod that reads outside of its table for one of the sequences: nothing is written.
TEST(SequencesOfACall, FailTogether) {
  const Tensor table = random_tensor(1, DType::f32, {25});
  Options options;
  options.score_mod = parse("score + table[kv]", {{"table", table}});
  const Attention attention = compile(options);
  const SequenceBatch batch(23, {{1, 20}, {1, 30}}, 2, 1, 16, 16,
                            {DType::f32, DType::f32, DType::f32});
  Tensor out(DType::f32, {2, 2, 16});
  const Tensor before = out.clone();
  EXPECT_THROW(attention.forward_into({out.view(), std::nullopt, std::nullopt}, batch.packed()),
               ModError);
  EXPECT_TRUE(same_bits(out, before));
}

}  // namespace
}  // namespace treadle
