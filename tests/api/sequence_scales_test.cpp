// Rows of pools with scales are the same numbers in f32.
#include <gtest/gtest.h>

#include "sequence_batch.h"

namespace treadle {
namespace {

using test::PagedBatch;
using test::random_tensor;
using test::same_bits;
using test::SequenceBatch;

constexpr std::int64_t page_size = 16;

// Rows of sequence s, multiplied with the scales of their pages.
Tensor scaled(const PagedBatch& pages, const Tensor& scales, std::size_t s, const Tensor& rows) {
  Tensor to(DType::f32, rows.shape());
  for (std::int64_t h = 0; h < rows.size(1); ++h) {
    for (std::int64_t key = 0; key < rows.size(2); ++key) {
      const std::int64_t page =
          pages.table.at<std::int32_t>({static_cast<std::int64_t>(s), key / page_size});
      Dims at{page, h};
      if (ConstView(scales).rank() == 3) {
        at = pages.order == PageOrder::heads_first ? Dims{page, h, key % page_size}
                                                   : Dims{page, key % page_size, h};
      }
      for (std::int64_t d = 0; d < rows.size(3); ++d) {
        const std::int64_t place = (h * rows.size(2) + key) * rows.size(3) + d;
        to.data<float>()[static_cast<std::size_t>(place)] =
            static_cast<float>(base::load_double(ConstView(rows).data(), rows.dtype(), place)) *
            scales.at<float>(at);
      }
    }
  }
  return to;
}

TEST(ScalesOfPages, MultiplyRows) {
  const std::vector<test::Lengths> lengths{{1, 90}, {40, 70}, {2, 1500}, {0, 5}};
  for (const DType type : {DType::i8, DType::e4m3}) {
    for (const PageOrder order : {PageOrder::heads_first, PageOrder::tokens_first}) {
      for (const bool by_page : {false, true}) {
        for (const DType query : {DType::f32, DType::f64}) {
          if (query == DType::f64 && (type != DType::i8 || by_page)) continue;
          SCOPED_TRACE(testing::Message()
                       << name_of(type) << (by_page ? ", by page" : ", by token"));
          const SequenceBatch batch(3, lengths, 4, 2, 84, 24, {query, type, type});
          PagedBatch pages(batch, page_size, order, 4, true);
          if (by_page) {
            pages.k_scales = random_tensor(1, DType::f32, {pages.k.size(0), 2});
            pages.v_scales = random_tensor(2, DType::f32, {pages.k.size(0), 2});
          }
          SequenceBatch floats(3, lengths, 4, 2, 84, 24, {query, DType::f32, DType::f32});
          for (std::size_t s = 0; s < batch.all.size(); ++s) {
            SequenceBatch::pack(floats.k.view(), floats.k_starts, s,
                                scaled(pages, pages.k_scales, s, batch.all[s].k));
            SequenceBatch::pack(floats.v.view(), floats.k_starts, s,
                                scaled(pages, pages.v_scales, s, batch.all[s].v));
          }
          for (const Backend backend : {Backend::cpu, Backend::reference}) {
            Options options;
            options.mask = parse("kv <= q");
            options.backend = backend;
            const Attention attention = compile(options);
            Sequences sequences = batch.packed();
            sequences.keys = pages.keys();
            const Call call{.lse = true};
            const Forward seen = attention.forward(sequences, call);
            const Forward wanted = attention.forward(floats.packed(), call);
            EXPECT_TRUE(same_bits(seen.out, wanted.out));
            EXPECT_TRUE(same_bits(seen.lse, wanted.lse));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace treadle
