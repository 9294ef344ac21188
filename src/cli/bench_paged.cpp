// Serving: caches in pages and batches of sequences, each compared with what it should be as fast as.
// Results are compared with those of plain calls before anything is timed. Read paged_cases() first.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/copy.h"
#include "base/error.h"
#include "base/parallel.h"
#include "cli/bench_case.h"
#include "cli/peak.h"
#include "cli/random_tensor.h"
#include "treadle/attention.h"
#include "treadle/sequences.h"

namespace treadle::cli {
namespace {

constexpr std::int64_t dim = 128;
// Caches take turns, so that none is found in the processor's.
constexpr std::int64_t all_bytes = std::int64_t{256} << 20;

struct Heads {
  std::int64_t queries = 32, keys = 32;
};

Tensor filled(DType type, Dims shape, std::uint64_t seed) {
  const Tensor tensor = random_tensor(std::move(shape), seed);
  return base::convert(tensor, type);
}

// Random bytes that are finite numbers in all of the types.
Tensor pool(DType type, std::int64_t pages, std::int64_t heads, std::int64_t page_size,
            std::uint64_t seed) {
  const Tensor some = filled(type, {1, heads, page_size, dim}, seed);
  Tensor all(type, {pages, heads, page_size, dim});
  const std::size_t bytes = static_cast<std::size_t>(some.count()) * size_of(type);
  for (std::int64_t page = 0; page < pages; ++page) {
    std::memcpy(static_cast<std::byte*>(all.view().data()) + static_cast<std::size_t>(page) * bytes,
                ConstView(some).data(), bytes);
    // Pages differ in their first element.
    const float mark = 0.001f * static_cast<float>(page % 100);
    base::copy(
        View(static_cast<std::byte*>(all.view().data()) + static_cast<std::size_t>(page) * bytes,
             type, {1}, {1}),
        ConstView(&mark, {1}));
  }
  return all;
}

// Sequences with a query each, or some, whose keys lie in shuffled pages.
struct PagedCache {
  Tensor k, v, table, lengths, q, q_starts, out;
  Tensor k_scales, v_scales;

  PagedCache(DType type, const Heads& heads, std::int64_t page_size,
             const std::vector<std::int64_t>& keys, std::int64_t shared = 0, bool scaled = false,
             const std::vector<std::int64_t>& queries = {}) {
    const auto pages_of = [&](std::int64_t length) { return (length + page_size - 1) / page_size; };
    const auto count = std::ssize(keys);
    std::int64_t pages = 0, longest = 0;
    for (const std::int64_t length : keys) {
      pages += pages_of(length);
      longest = std::max(longest, pages_of(length));
    }
    std::vector<std::int32_t> free(static_cast<std::size_t>(pages));
    std::iota(free.begin(), free.end(), 0);
    std::mt19937_64 random(1);
    std::ranges::shuffle(free, random);
    k = pool(type, pages, heads.keys, page_size, 2);
    v = pool(type, pages, heads.keys, page_size, 3);
    table = Tensor(DType::i32, {count, longest});
    lengths = Tensor(DType::i32, {count});
    q_starts = Tensor(DType::i32, {count + 1});
    for (std::int64_t s = 0; s < count; ++s) {
      const auto at = static_cast<std::size_t>(s);
      lengths.data<std::int32_t>()[at] = static_cast<std::int32_t>(keys[at]);
      const std::int64_t own = queries.empty() ? 1 : queries[at];
      q_starts.data<std::int32_t>()[at + 1] =
          q_starts.data<std::int32_t>()[at] + static_cast<std::int32_t>(own);
      for (std::int64_t p = 0; p < pages_of(keys[at]); ++p) {
        table.at<std::int32_t>({s, p}) =
            s > 0 && p < shared / page_size ? table.at<std::int32_t>({0, p}) : free.back();
        free.pop_back();
      }
    }
    const DType query_type = size_of(type) == 1 ? DType::bf16 : type;
    const std::int64_t rows = q_starts.data<std::int32_t>().back();
    q = filled(query_type, {rows, heads.queries, dim}, 1);
    out = Tensor(query_type, {rows, heads.queries, dim});
    if (!scaled) return;
    for (Tensor* scales : {&k_scales, &v_scales}) {
      *scales = Tensor(DType::f32, {pages, heads.keys, page_size});
      std::ranges::fill(scales->data<float>(), 0.01f);
    }
  }

  [[nodiscard]] PagedKeys keys() const {
    PagedKeys all{k, v, table, lengths};
    if (k_scales.count() > 0) {
      all.k_scales = k_scales;
      all.v_scales = v_scales;
    }
    return all;
  }
  void step(const Attention& attention, const std::shared_ptr<Executor>& executor) {
    attention.forward_into({out.view(), std::nullopt, std::nullopt}, {q, q_starts, keys()},
                           {.captures = {}, .executor = executor});
  }
  // The keys of sequence s, one after the other: [1, heads, keys, dim].
  [[nodiscard]] Tensor contiguous(const Tensor& from, std::int64_t s) const {
    const std::int64_t length = lengths.data<std::int32_t>()[static_cast<std::size_t>(s)];
    const std::int64_t heads = from.size(1), page_size = from.size(2);
    Tensor rows(from.dtype(), {1, heads, length, dim});
    const auto row = static_cast<std::size_t>(dim) * size_of(from.dtype());
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t key = 0; key < length; ++key) {
        const std::int64_t page = table.at<std::int32_t>({s, key / page_size});
        std::memcpy(
            static_cast<std::byte*>(rows.view().data()) +
                static_cast<std::size_t>(h * length + key) * row,
            static_cast<const std::byte*>(ConstView(from).data()) +
                static_cast<std::size_t>((page * heads + h) * page_size + key % page_size) * row,
            row);
      }
    }
    return rows;
  }
};

// Contiguous keys, for a plain call.
struct PlainCache {
  Tensor q, k, v, out;

  PlainCache(const PagedCache& paged, std::int64_t s)
      : k(paged.contiguous(paged.k, s)), v(paged.contiguous(paged.v, s)) {
    const std::int64_t heads = paged.q.size(1);
    q = Tensor(paged.q.dtype(), {1, heads, 1, dim});
    const std::size_t bytes = static_cast<std::size_t>(heads * dim) * size_of(q.dtype());
    std::memcpy(q.view().data(),
                static_cast<const std::byte*>(ConstView(paged.q).data()) +
                    static_cast<std::size_t>(s) * bytes,
                bytes);
    out = Tensor(q.dtype(), q.shape());
  }
  void step(const Attention& attention, const std::shared_ptr<Executor>& executor) {
    attention.forward_into({out.view(), std::nullopt, std::nullopt}, {q, k, v},
                           {.captures = {}, .executor = executor});
  }
};

void expect_same(std::string_view name, const Tensor& all, std::int64_t s, const Tensor& one) {
  const std::size_t bytes = static_cast<std::size_t>(one.count()) * size_of(one.dtype());
  if (std::memcmp(static_cast<const std::byte*>(ConstView(all).data()) +
                      static_cast<std::size_t>(s) * bytes,
                  ConstView(one).data(), bytes) != 0)
    base::internal_error("bench: {}: sequence {} has other bits than alone", name, s);
}

Measured described(DType type, const Heads& heads, std::int64_t sequences, std::int64_t keys) {
  Measured measured{.batch = sequences,
                    .heads = heads.queries,
                    .key_heads = heads.keys,
                    .queries = 1,
                    .keys = keys};
  measured.dtype = name_of(type);
  measured.dim = measured.value_dim = dim;
  return measured;
}

std::shared_ptr<Executor> borrowed(Executor& executor) {
  return {&executor, [](Executor*) {}};
}

// Pages beside contiguous keys.
Measured measure_pages(std::string_view name, const Heads& heads, std::int64_t page_size,
                       Executor& executor) {
  const auto on = borrowed(executor);
  const std::int64_t keys = heads.keys == heads.queries ? 8192 : 16384;
  const std::int64_t bytes = 2 * heads.keys * keys * dim * 2;
  const Attention attention = compile({});
  std::vector<PagedCache> paged;
  std::vector<PlainCache> plain;
  for (std::int64_t i = 0; i < std::max<std::int64_t>(1, all_bytes / bytes); ++i) {
    paged.emplace_back(DType::bf16, heads, page_size, std::vector<std::int64_t>{keys});
    plain.emplace_back(paged.back(), 0);
  }
  const auto in_pages = [&] {
    for (PagedCache& cache : paged) cache.step(attention, on);
  };
  const auto in_place = [&] {
    for (PlainCache& cache : plain) cache.step(attention, on);
  };
  in_pages();
  in_place();
  expect_same(name, paged.front().out, 0, plain.front().out);
  Measured measured = described(DType::bf16, heads, 1, keys);
  measured.ratio = measure_ratio(in_place, in_pages);
  measured.ms = best_ms(in_pages) / static_cast<double>(paged.size());
  measured.note =
      fmt::format("pages of {}; the ratio is the speed beside contiguous keys", page_size);
  return measured;
}

// Sequences of many lengths beside one that is as long as all of them.
Measured measure_ragged(std::string_view name, Executor& executor) {
  const auto on = borrowed(executor);
  const Heads heads{32, 8};
  std::vector<std::int64_t> keys;
  for (std::int64_t i = 1; i <= 16; ++i) keys.push_back(1024 * ((i * 7 - 1) % 16 + 1) - i);
  const std::int64_t all = std::accumulate(keys.begin(), keys.end(), std::int64_t{0});
  const Attention attention = compile({});
  PagedCache ragged(DType::bf16, heads, 128, keys);
  PagedCache one(DType::bf16, heads, 128, {all});
  ragged.step(attention, on);
  for (const std::int64_t s : {0, 9}) {
    PlainCache alone(ragged, s);
    alone.step(attention, on);
    expect_same(name, ragged.out, s, alone.out);
  }
  Measured measured = described(DType::bf16, heads, 16, all / 16);
  measured.ratio =
      measure_ratio([&] { one.step(attention, on); }, [&] { ragged.step(attention, on); });
  measured.ms = best_ms([&] { ragged.step(attention, on); });
  measured.note = "16 lengths to 16k; the ratio is the speed beside one long sequence";
  return measured;
}

Measured measure_int8(Executor& executor) {
  const auto on = borrowed(executor);
  const Heads heads;
  const Attention attention = compile({});
  std::vector<PagedCache> wide, narrow;
  for (int i = 0; i < 2; ++i)
    wide.emplace_back(DType::bf16, heads, 128, std::vector<std::int64_t>{8192});
  for (int i = 0; i < 4; ++i)
    narrow.emplace_back(DType::i8, heads, 128, std::vector<std::int64_t>{8192}, 0, true);
  const auto run = [&](std::vector<PagedCache>& caches) {
    for (int turn = 0; turn < 4 / std::ssize(caches); ++turn)
      for (PagedCache& cache : caches) cache.step(attention, on);
  };
  Measured measured = described(DType::i8, heads, 1, 8192);
  measured.ratio = 1 / measure_ratio([&] { run(wide); }, [&] { run(narrow); });
  measured.ms = best_ms([&] { run(narrow); }) / 4;
  measured.note = "scales of tokens; the ratio is the time beside bf16";
  return measured;
}

// Sequences that share a long prefix. Grouped heads are compared with what products, or reads, take.
Measured measure_shared(std::string_view name, const Heads& heads, Executor& executor) {
  const auto on = borrowed(executor);
  constexpr std::int64_t prefix = 16384, sequences = 16;
  const Attention attention = compile({});
  const std::vector<std::int64_t> keys(sequences, prefix + 64);
  PagedCache shared(DType::bf16, heads, 128, keys, prefix);
  Measured measured = described(DType::bf16, heads, sequences, prefix + 64);
  shared.step(attention, on);
  PlainCache alone(shared, 5);
  alone.step(attention, on);
  expect_same(name, shared.out, 5, alone.out);
  measured.ms = best_ms([&] { shared.step(attention, on); });
  if (heads.keys == heads.queries) {
    PagedCache apart(DType::bf16, heads, 128, keys);
    measured.ratio =
        1 / measure_ratio([&] { apart.step(attention, on); }, [&] { shared.step(attention, on); });
    measured.note = "a prefix of 16k; the ratio is the time beside not sharing it";
    return measured;
  }
  Peak peak(plan::host_target(), DType::f32, executor);
  const double flops = 4.0 * static_cast<double>(heads.queries * sequences * (prefix + 64) * dim);
  const Share share = measure_share(peak, flops, [&] { shared.step(attention, on); });
  measured.share = share.share;
  measured.gflops = share.gflops;
  measured.ratio = 1 / share.share;
  measured.note =
      "a prefix of 16k; the ratio is the time beside that of the products at the loop's speed";
  return measured;
}

// A chunk of a prompt beside single tokens, in one call and in two.
Measured measure_mixed(Executor& executor) {
  const auto on = borrowed(executor);
  const Heads heads{32, 8};
  Options options;
  options.mask = [](Index, Index, Index q, Index kv) { return kv <= q; };
  const Attention attention = compile(options);
  std::vector<std::int64_t> keys{4096}, queries{2048};
  for (std::int64_t i = 0; i < 32; ++i) {
    keys.push_back(4096);
    queries.push_back(1);
  }
  PagedCache mixed(DType::bf16, heads, 128, keys, 0, false, queries);
  PagedCache prompt(DType::bf16, heads, 128, {4096}, 0, false, {2048});
  PagedCache tokens(DType::bf16, heads, 128, std::vector<std::int64_t>(32, 4096));
  const auto apart = [&] {
    prompt.step(attention, on);
    tokens.step(attention, on);
  };
  const auto together = [&] { mixed.step(attention, on); };
  apart();
  together();
  Measured measured = described(DType::bf16, heads, 33, 4096);
  measured.ratio = 1 / measure_ratio(apart, together);
  measured.ms = best_ms(together);
  measured.note = "2048 queries and 32 tokens; the ratio is the time beside two calls";
  return measured;
}

// What a call of many sequences takes besides its keys.
Measured measure_planning(Executor& executor) {
  const auto on = borrowed(executor);
  Options options;
  options.mask = [](Index, Index, Index q, Index kv) { return kv <= q; };
  const Attention attention = compile(options);
  std::vector<std::int64_t> keys;
  for (std::int64_t i = 0; i < 256; ++i) keys.push_back(1 + i % 16);
  PagedCache cache(DType::bf16, {1, 1}, 16, keys);
  cache.step(attention, on);
  Measured measured = described(DType::bf16, {1, 1}, 256, 16);
  measured.ms = best_ms([&] {
                  for (int i = 0; i < 10; ++i) cache.step(attention, on);
                }) /
                10;
  measured.note = "256 sequences of a few keys: planning, and little else";
  return measured;
}

}  // namespace

std::vector<BenchCase> paged_cases() {
  std::vector<BenchCase> cases;
  const auto add = [&](std::string name, auto measure) {
    cases.push_back(
        {name, "paged", [name, measure](Executor& executor) { return measure(name, executor); }});
  };
  for (const std::int64_t page_size : {16, 128}) {
    for (const Heads heads : {Heads{32, 32}, Heads{32, 8}}) {
      add(fmt::format("paged-{}{}", page_size, heads.keys == 8 ? "-grouped" : ""),
          [=](std::string_view name, Executor& executor) {
            return measure_pages(name, heads, page_size, executor);
          });
    }
  }
  add("paged-ragged",
      [](std::string_view name, Executor& executor) { return measure_ragged(name, executor); });
  add("paged-int8", [](std::string_view, Executor& executor) { return measure_int8(executor); });
  for (const Heads heads : {Heads{32, 32}, Heads{32, 8}}) {
    add(fmt::format("paged-shared{}", heads.keys == 8 ? "-grouped" : ""),
        [=](std::string_view name, Executor& executor) {
          return measure_shared(name, heads, executor);
        });
  }
  add("paged-mixed", [](std::string_view, Executor& executor) { return measure_mixed(executor); });
  add("paged-planning",
      [](std::string_view, Executor& executor) { return measure_planning(executor); });
  return cases;
}

}  // namespace treadle::cli
