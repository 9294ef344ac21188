// Sequences whose page tables begin with the same pages have the bits that they have with copies.
#include <gtest/gtest.h>

#include "fuzz.h"
#include "sequence_batch.h"

namespace treadle {
namespace {

using test::Lengths;
using test::PagedBatch;
using test::same_bits;
using test::SequenceBatch;

TEST(SharedPages, GiveTheBitsOfCopies) {
  for (int round = 0; round < test::fuzz_count(60); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    constexpr const char* masks[] = {"true", "kv <= q", "kv <= q && (q - kv < 1100 || kv < 4)",
                                     "kv <= q && kv % 5 != b"};
    Options options;
    options.mask = parse(masks[random() % 4]);
    options.score_mod = parse(random() % 2 == 0 ? "score" : "score + 0.01 * (kv - q) * (h + b)");
    const Attention attention = compile(options);
    const auto shared = static_cast<std::int64_t>(random() % 2300);
    const std::size_t sharing = 2 + random() % 6;  // sequences
    std::vector<Lengths> lengths;
    for (std::size_t s = 0; s < sharing + 2; ++s) {
      const auto more = static_cast<std::int64_t>(1 + random() % 300);
      lengths.push_back({random() % 3 == 0 ? std::min<std::int64_t>(3, more) : 1,
                         s < sharing ? shared + more : more});
    }
    const std::int64_t key_heads = 1 + static_cast<std::int64_t>(random() % 2);
    const std::int64_t heads = key_heads * (random() % 2 == 0 ? 1 : 4);
    const DType type = random() % 2 == 0 ? DType::f32 : DType::bf16;
    const SequenceBatch batch(seed % 1000, lengths, heads, key_heads, 16, 16, {type, type, type});
    constexpr std::int64_t sizes[] = {1, 16, 20, 128};
    const std::int64_t page_size = sizes[random() % 4];
    PagedBatch pages(batch, page_size, PageOrder::heads_first, seed);
    const auto page = [&](std::size_t s, std::int64_t p) -> std::int32_t& {
      return pages.table.at<std::int32_t>({static_cast<std::int64_t>(s), p});
    };
    const auto for_each_shared = [&](auto&& body) {
      for (std::size_t s = 1; s < sharing; ++s)
        for (std::int64_t p = 0; p < shared / page_size; ++p) body(s, p);
    };
    for_each_shared([&](std::size_t s, std::int64_t p) {
      for (Tensor* pool : {&pages.k, &pages.v})
        base::copy(pages.page_of(pool->view(), page(s, p), page_size),
                   pages.page_of(ConstView(*pool), page(0, p), page_size));
    });
    Call call{.lse = true, .max = true};
    call.executor = tbb_executor(1 + static_cast<int>(random() % 3));
    if (seed % 3 == 0) call.dropout = {.probability = 0.3, .seed = seed};
    Sequences sequences = batch.packed();
    sequences.keys = pages.keys();
    const Forward copies = attention.forward(sequences, call);
    for_each_shared([&](std::size_t s, std::int64_t p) { page(s, p) = page(0, p); });
    const Forward same = attention.forward(sequences, call);
    EXPECT_TRUE(same_bits(same.out, copies.out)) << shared << " keys are shared";
    EXPECT_TRUE(same_bits(same.lse, copies.lse)) << shared << " keys are shared";
    EXPECT_TRUE(same_bits(same.max, copies.max)) << shared << " keys are shared";
  }
}

}  // namespace
}  // namespace treadle
