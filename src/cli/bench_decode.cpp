// Decode: one query, or a few, against a cache of keys and values, as a share of a loop that reads the
// same bytes. Read measure_decode() first.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/copy.h"
#include "base/error.h"
#include "base/parallel.h"
#include "cli/bench_case.h"
#include "cli/peak.h"
#include "cli/random_tensor.h"
#include "cli/row_check.h"
#include "treadle/attention.h"

namespace treadle::cli {
namespace {

struct DecodeCase {
  std::string name;
  DType dtype = DType::f32;
  std::int64_t heads = 32, key_heads = 32, keys = 8192, queries = 1;
};

constexpr std::int64_t decode_dim = 128;
// Caches take turns, so that none is found in the processor's.
constexpr std::int64_t all_bytes = std::int64_t{256} << 20;

struct Cache {
  Tensor k, v;
};

Tensor filled(const DecodeCase& c, std::int64_t heads, std::int64_t length, std::uint64_t seed) {
  Tensor tensor = random_tensor({1, heads, length, decode_dim}, seed);
  return c.dtype == DType::f32 ? std::move(tensor) : base::convert(tensor, c.dtype);
}

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t size : tensor.shape()) count *= size;
  return {static_cast<const std::byte*>(ConstView(tensor).data()),
          static_cast<std::size_t>(count) * size_of(tensor.dtype())};
}

// Every byte once, on all threads.
void read(const std::vector<Cache>& caches, Executor& executor) {
  const std::int64_t threads = std::max(executor.threads(), 1);
  for (const Cache& cache : caches) {
    for (const Tensor* tensor : {&cache.k, &cache.v}) {
      const auto all = bytes_of(*tensor);
      base::parallel_for(executor, threads, [&](std::int64_t i) {
        const auto part = static_cast<std::int64_t>(all.size()) / threads;
        volatile std::uint64_t sum = read_words(
            all.subspan(static_cast<std::size_t>(i * part), static_cast<std::size_t>(part)));
        (void)sum;
      });
    }
  }
}

Measured measure_decode(const DecodeCase& c, Executor& executor) {
  const std::int64_t bytes =
      2 * c.key_heads * c.keys * decode_dim * static_cast<std::int64_t>(size_of(c.dtype));
  std::vector<Cache> caches;
  for (std::int64_t i = 0; i < std::max<std::int64_t>(1, all_bytes / bytes); ++i) {
    const auto seed = static_cast<std::uint64_t>(2 + 2 * i);
    caches.push_back(
        {filled(c, c.key_heads, c.keys, seed), filled(c, c.key_heads, c.keys, seed + 1)});
  }
  const Tensor q = filled(c, c.heads, c.queries, 1);
  const std::shared_ptr<Executor> shared(&executor, [](Executor*) {});
  const Attention attention = compile({});
  Tensor out(c.dtype, q.shape());
  const auto step = [&](const Cache& cache) {
    attention.forward_into({out.view(), std::nullopt, std::nullopt}, {q, cache.k, cache.v},
                           {.captures = {}, .executor = shared});
  };
  step(caches.front());
  Measured measured{
      .heads = c.heads, .key_heads = c.key_heads, .queries = c.queries, .keys = c.keys};
  measured.dtype = name_of(c.dtype);
  measured.dim = measured.value_dim = decode_dim;
  measured.error = row_error({}, {q, caches.front().k, caches.front().v}, out);
  const double most = c.dtype == DType::bf16 ? 2e-2 : c.dtype == DType::f16 ? 2e-3 : 1e-5;
  if (!(*measured.error <= most))
    base::internal_error("bench: {}: the result is off by {}", c.name, *measured.error);

  const auto work = [&] {
    for (const Cache& cache : caches) step(cache);
  };
  measured.share = measure_ratio([&] { read(caches, executor); }, work);
  measured.ms = best_ms(work) / static_cast<double>(caches.size());
  measured.note = fmt::format("{:.1f} GB/s; the share is of reading them",
                              static_cast<double>(bytes) / measured.ms / 1e6);
  return measured;
}

}  // namespace

std::vector<BenchCase> decode_cases() {
  std::vector<BenchCase> cases;
  for (const DecodeCase& c : std::vector<DecodeCase>{
           {"decode-f32", DType::f32},
           {"decode-bf16", DType::bf16},
           {"decode-f16", DType::f16},
           {"decode-f32-grouped", DType::f32, 32, 8, 16384},
           {"decode-bf16-grouped", DType::bf16, 32, 8, 16384},
           {"decode-f16-grouped", DType::f16, 32, 8, 16384},
           {"decode-bf16-one-head-1m", DType::bf16, 1, 1, 1 << 20},
           {"decode-bf16-4-queries", DType::bf16, 32, 32, 8192, 4},
       }) {
    cases.push_back(
        {c.name, "decode", [c](Executor& executor) { return measure_decode(c, executor); }});
  }
  return cases;
}

}  // namespace treadle::cli
