// A call that ranks make together, and what one machine makes of it.
//
//   SpreadCall call(options, {.ranks = 3});
//   on_ranks(in_process_exchanges(3), [&](int rank, const auto& exchange) {
//     const distributed::Plan plan = call.plan(exchange);
//     EXPECT_EQ(call.differences(rank, plan), "");       // forward and backward
//   });
#pragma once

#include <memory>
#include <optional>
#include <random>
#include <string>

#include "fuzz.h"
#include "rank_threads.h"
#include "rows.h"
#include "treadle/treadle.h"

namespace treadle::test {

// What it is of. Lengths that are not given: as many keys as queries.
struct SpreadShape {
  int ranks = 3;
  std::int64_t batch = 1, heads = 4, key_heads = 2, queries = 700, keys = -1, dim = 16;
  DType dtype = DType::f32;
  std::uint64_t seed = 1;
};

class SpreadCall {
 public:
  explicit SpreadCall(const Options& options, const SpreadShape& shape = {})
      : attention(compile(options)) {
    std::mt19937_64 engine = rng(shape.seed);
    Random random{engine};
    const std::int64_t length = shape.keys < 0 ? shape.queries : shape.keys;
    const Dims of_q{shape.batch, shape.heads, shape.queries, shape.dim},
        of_k{shape.batch, shape.key_heads, length, shape.dim};
    q = random_tensor(random, shape.dtype, of_q);
    k = random_tensor(random, shape.dtype, of_k);
    v = random_tensor(random, shape.dtype, of_k);
    dout = random_tensor(random, shape.dtype, of_q);
    queries = distributed::Shards::even(shape.queries, shape.ranks);
    keys = distributed::Shards::even(length, shape.ranks);
    call.executor = serial_executor();
    call.lse = true;
    // Nobody is late here: a test that waits so long has failed.
    plan_options.patience = std::chrono::seconds(100);
  }

  static TensorSpec spec(const Tensor& t) { return {t.dtype(), t.shape()}; }
  [[nodiscard]] distributed::Plan plan(const std::shared_ptr<Exchange>& exchange) const {
    return distributed::plan(attention, exchange, spec(q), spec(k), spec(v), queries, keys, call,
                             plan_options);
  }
  [[nodiscard]] ConstView rows(const ConstView& of_queries, int rank) const {
    return rows_of(of_queries, queries.begin(rank), queries.end(rank));
  }
  [[nodiscard]] ConstView key_rows(const ConstView& of_keys, int rank) const {
    return rows_of(of_keys, keys.begin(rank), keys.end(rank));
  }
  [[nodiscard]] Inputs mine(int rank) const {
    return {rows(q, rank), key_rows(k, rank), key_rows(v, rank)};
  }
  [[nodiscard]] Forward forward(int rank, const distributed::Plan& plan) const {
    return distributed::forward(attention, plan, mine(rank), call);
  }
  [[nodiscard]] Backward backward(int rank, const distributed::Plan& plan, const Forward& y) const {
    std::optional<ConstView> own_dlse;
    if (dlse) own_dlse = rows(*dlse, rank);
    return distributed::backward(attention, plan, mine(rank), {y.out, y.lse}, rows(dout, rank),
                                 own_dlse, call);
  }

  // Of one machine, before threads begin.
  void find_whole() {
    whole = attention.forward({q, k, v}, call);
    std::optional<ConstView> all_dlse;
    if (dlse) all_dlse = *dlse;
    gradients = attention.backward({q, k, v}, {whole.out, whole.lse}, dout, all_dlse, call);
  }
  // Of one result of a rank; "" if its bits are the whole's.
  [[nodiscard]] static std::string difference(const char* name, const ConstView& part,
                                              const ConstView& all, std::int64_t begin,
                                              std::int64_t end) {
    std::string where;
    return same_bits(part, all, begin, end, where) ? "" : fmt::format("{} {}\n", name, where);
  }
  [[nodiscard]] std::string difference(int rank, const Forward& y) const {
    const std::int64_t begin = queries.begin(rank), end = queries.end(rank);
    std::string all = difference("out", y.out, whole.out, begin, end);
    if (call.lse) all += difference("lse", y.lse, whole.lse, begin, end);
    if (call.max) all += difference("max", y.max, whole.max, begin, end);
    return all;
  }
  [[nodiscard]] std::string difference(int rank, const Backward& g) const {
    const std::int64_t begin = keys.begin(rank), end = keys.end(rank);
    std::string all = difference("dq", g.dq, gradients.dq, queries.begin(rank), queries.end(rank)) +
                      difference("dk", g.dk, gradients.dk, begin, end) +
                      difference("dv", g.dv, gradients.dv, begin, end);
    const auto whole_difference = [&](const Tensor& got, const Tensor& expected) {
      const auto bytes = static_cast<std::size_t>(got.count()) * size_of(got.dtype());
      if (got.count() != expected.count() ||
          std::memcmp(got.view().data(), expected.view().data(), bytes) != 0)
        all += "a whole gradient\n";
    };
    for (std::size_t i = 0; i < g.captures.size(); ++i)
      whole_difference(g.captures[i].gradient, gradients.captures[i].gradient);
    if (call.sinks) whole_difference(g.dsinks, gradients.dsinks);
    return all;
  }
  // What differs from one machine's call.
  [[nodiscard]] std::string differences(int rank, const distributed::Plan& plan) const {
    const Forward y = forward(rank, plan);
    return difference(rank, y) + difference(rank, backward(rank, plan, y));
  }

  Attention attention;
  Tensor q, k, v, dout;
  std::optional<Tensor> dlse;
  distributed::Shards queries, keys;
  distributed::PlanOptions plan_options;
  Call call;
  Forward whole;
  Backward gradients;
};

}  // namespace treadle::test
