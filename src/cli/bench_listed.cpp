// Forward on listed keys: an eighth of the keys, chosen at random for each block of queries, beside
// dense attention. Read measure_listed() first.
#include <fmt/core.h>

#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/bench_case.h"
#include "cli/peak.h"
#include "cli/random_tensor.h"
#include "cli/row_check.h"
#include "treadle/attention.h"
#include "treadle/key_lists.h"

namespace treadle::cli {
namespace {

constexpr std::int64_t heads = 8, length = 4096, dim = 64;
constexpr std::int64_t one_in = 8;

// Lists of blocks, and the same as a table of what is listed, by which results are checked.
struct Lists {
  Tensor indices;                 // [1, heads, query blocks, longest list]
  std::shared_ptr<Tensor> table;  // [heads, query blocks, key blocks]
};

Lists random_lists(std::int64_t query_block, std::int64_t key_block) {
  const std::int64_t query_blocks = length / query_block, key_blocks = length / key_block;
  const std::int64_t listed = key_blocks / one_in;
  Lists lists{Tensor(DType::i32, {1, heads, query_blocks, listed}),
              std::make_shared<Tensor>(DType::boolean, Dims{heads, query_blocks, key_blocks})};
  std::mt19937_64 random(7);
  std::vector<std::int32_t> blocks(static_cast<std::size_t>(key_blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t row = 0; row < query_blocks; ++row) {
      for (std::int64_t i = 0; i < listed; ++i) {
        const auto other = std::uniform_int_distribution<std::int64_t>(i, key_blocks - 1)(random);
        std::swap(blocks[static_cast<std::size_t>(i)], blocks[static_cast<std::size_t>(other)]);
        const std::int32_t block = blocks[static_cast<std::size_t>(i)];
        lists.indices.at<std::int32_t>({0, h, row, i}) = block;
        lists.table->at<bool>({h, row, block}) = true;
      }
    }
  }
  return lists;
}

Measured measure_listed(std::int64_t query_block, std::int64_t key_block, Executor& executor) {
  const Tensor q = random_tensor({1, heads, length, dim}, 1),
               k = random_tensor({1, heads, length, dim}, 2),
               v = random_tensor({1, heads, length, dim}, 3);
  const Inputs inputs{q, k, v};
  const Lists lists = random_lists(query_block, key_block);
  const std::shared_ptr<Executor> shared(&executor, [](Executor*) {});
  const Call plain{.captures = {}, .executor = shared};
  const Attention attention = compile({});
  Call dense = plain, listed = plain;
  dense.layout = attention.layout(inputs, plain);
  listed.layout = attention.layout(KeyLists{query_block, key_block, lists.indices}, inputs, plain);

  Tensor out(DType::f32, {1, heads, length, dim});
  const ForwardViews results{out.view(), std::nullopt, std::nullopt};
  const auto work = [&] { attention.forward_into(results, inputs, listed); };
  work();  // compiles
  Options checked;
  checked.mask = [table = Capture("table", lists.table), query_block, key_block](
                     Index, Index h, Index row, Index kv) {
    return table(h, floor_div(row, query_block), floor_div(kv, key_block)) != 0;
  };
  Measured measured{.heads = heads, .key_heads = heads, .queries = length, .keys = length};
  measured.dtype = name_of(DType::f32);
  measured.dim = measured.value_dim = dim;
  measured.error = row_error(checked, inputs, out);
  if (!(*measured.error <= 1e-5))
    base::internal_error("bench: listed: the result is off by {}", *measured.error);

  measured.density = 1.0 / one_in;
  measured.run_density = listed.layout.density();
  const double flops = 4 * *measured.density * static_cast<double>(heads * length * length * dim);
  Peak peak(plan::host_target(), DType::f32, executor);
  const Share share = measure_share(peak, flops, work);
  measured.ms = share.ms;
  measured.gflops = share.gflops;
  measured.share = share.share;
  measured.ratio = measure_ratio([&] { attention.forward_into(results, inputs, dense); }, work);
  measured.note = fmt::format("{} queries share a list of {}; ratio: of dense", query_block,
                              key_block == 1 ? "keys" : fmt::format("blocks of {}", key_block));
  return measured;
}

}  // namespace

std::vector<BenchCase> listed_cases() {
  std::vector<BenchCase> made;
  using Blocks = std::pair<std::int64_t, std::int64_t>;
  for (const auto& [query_block, key_block] : {Blocks{128, 64}, Blocks{64, 64}, Blocks{16, 64},
                                               Blocks{1, 64}, Blocks{64, 1}, Blocks{16, 1}}) {
    made.push_back({fmt::format("forward-listed-{}x{}", query_block, key_block), "forward",
                    [=](Executor& e) { return measure_listed(query_block, key_block, e); }});
  }
  return made;
}

}  // namespace treadle::cli
