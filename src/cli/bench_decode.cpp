// Decode: one query, or a few, against a cache of keys and values, as a share of a loop that reads the
// keys and values they see; many queries as a share of the loop of multiply-adds. Read
// measure_decode() first.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
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
  std::int64_t window = 0, first_keys = 0;  // what the last query sees; 0: all
  bool by_peak = false;                     // compared with multiply-adds

  // Ranges of keys that are seen.
  [[nodiscard]] std::vector<std::pair<std::int64_t, std::int64_t>> seen() const {
    if (window == 0) return {{0, keys}};
    return {{0, first_keys}, {keys - window, keys}};
  }
  [[nodiscard]] std::int64_t seen_keys() const { return window == 0 ? keys : window + first_keys; }
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

// Every byte that is seen, once, on all threads.
void read(const DecodeCase& c, const std::vector<Cache>& caches, Executor& executor) {
  const std::int64_t row = decode_dim * static_cast<std::int64_t>(size_of(c.dtype));
  const auto parts = static_cast<std::int64_t>(c.window == 0 ? std::max(executor.threads(), 1) : 1);
  for (const Cache& cache : caches) {
    base::parallel_for(executor, 2 * c.key_heads * parts, [&](std::int64_t i) {
      const Tensor& tensor = i % 2 == 0 ? cache.k : cache.v;
      const auto* head =
          static_cast<const std::byte*>(ConstView(tensor).data()) + i / 2 / parts * c.keys * row;
      for (const auto& [begin, end] : c.seen()) {
        const std::int64_t bytes = (end - begin) * row / parts;
        volatile std::uint64_t sum = read_words(
            {head + begin * row + i / 2 % parts * bytes, static_cast<std::size_t>(bytes)});
        (void)sum;
      }
    });
  }
}

Options options_of(const DecodeCase& c) {
  Options options;
  if (c.window == 0) return options;
  options.mask = [c](Index, Index, Index, Index kv) {
    return kv >= c.keys - c.window || kv < c.first_keys;
  };
  return options;
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
  const Options options = options_of(c);
  const Attention attention = compile(options);
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
  measured.error = row_error(options, {q, caches.front().k, caches.front().v}, out);
  const double most = c.dtype == DType::bf16 ? 2e-2 : c.dtype == DType::f16 ? 2e-3 : 1e-5;
  if (!(*measured.error <= most))
    base::internal_error("bench: {}: the result is off by {}", c.name, *measured.error);

  const auto work = [&] {
    for (const Cache& cache : caches) step(cache);
  };
  if (c.by_peak) {
    Peak peak(plan::host_target(), DType::f32, executor);
    const double flops = 4.0 * static_cast<double>(c.heads * c.queries * c.keys * decode_dim) *
                         static_cast<double>(caches.size());
    const Share share = measure_share(peak, flops, work);
    measured.share = share.share;
    measured.gflops = share.gflops;
    measured.ms = share.ms / static_cast<double>(caches.size());
    return measured;
  }
  measured.share = measure_ratio([&] { read(c, caches, executor); }, work);
  measured.ms = best_ms(work) / static_cast<double>(caches.size());
  const double seen =
      static_cast<double>(bytes) * static_cast<double>(c.seen_keys()) / static_cast<double>(c.keys);
  measured.note =
      fmt::format("{:.1f} GB/s; the share is of reading them", seen / measured.ms / 1e6);
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
           {"decode-bf16-16-queries", DType::bf16, 32, 32, 8192, 16, 0, 0, true},
           {"decode-bf16-window", DType::bf16, 32, 8, 16384, 1, 1024, 4},
       }) {
    cases.push_back(
        {c.name, "decode", [c](Executor& executor) { return measure_decode(c, executor); }});
  }
  return cases;
}

}  // namespace treadle::cli
