// Calls that are unlike most: numbers that are not finite, memory of any strides, results in the place of inputs, options
// of calls, several threads in a rank, tiny and empty problems, several plans at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/copy.h"
#include "distributed/held_plan.h"
#include "special_values.h"
#include "spread_call.h"

namespace treadle {
namespace {

namespace td = distributed;

using test::inf;
using test::Random;
using test::SpreadCall;
using test::SpreadShape;

Options masked(const std::string& mask) {
  Options options;
  options.mask = parse(mask, {});
  return options;
}

// Forward and backward with the bits of one machine's, on so many ranks.
void expect_same(SpreadCall& call, const test::Exchanges& exchanges) {
  call.find_whole();
  test::on_ranks(exchanges, [&](int r, const std::shared_ptr<Exchange>& exchange) {
    const td::Plan plan = call.plan(exchange);
    EXPECT_EQ(call.differences(r, plan), "") << "rank " << r;
    EXPECT_EQ(call.differences(r, plan), "") << "rank " << r << ", again";
  });
}
void expect_same(SpreadCall& call) {
  expect_same(call, in_process_exchanges(call.queries.ranks(), {.seed = 3}));
}

void set(Tensor& tensor, std::int64_t row, double value) {
  for (std::int64_t h = 0; h < tensor.size(1); ++h)
    base::store_double(tensor.view().data(), tensor.dtype(),
                       h * tensor.view().stride(1) + row * tensor.view().stride(2) + 3, value);
}

TEST(SpecialNumbers, HiddenAndVisible) {
  const std::vector<std::string> masks{"q >= kv", "abs(q - kv) <= 30",
                                       "q >= kv and (q - kv < 64 or (q - kv) % 64 == 0)"};
  for (int round = 0; round < test::fuzz_count(60); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 engine = test::rng(seed);
    Random random{engine};
    SpreadShape shape{.ranks = static_cast<int>(1 + random(4)),
                      .queries = 100 + random(500),
                      .dtype = random.one_in(3) ? DType::bf16 : DType::f32,
                      .seed = seed};
    SpreadCall call(masked(masks[static_cast<std::size_t>(random(3))]), shape);
    call.queries = test::random_shards(random, shape.queries, shape.ranks);
    call.keys = test::random_shards(random, shape.queries, shape.ranks);
    const std::vector<double> values{test::nan, inf, -inf, 1e38};
    for (Tensor* tensor : {&call.q, &call.k, &call.v, &call.dout})
      while (random.one_in(2))
        set(*tensor, random(shape.queries), values[static_cast<std::size_t>(random(4))]);
    if (random.one_in(2)) {
      call.dlse = test::random_tensor(random, DType::f32, {1, 4, shape.queries});
      if (random.one_in(2)) call.dlse->data<float>()[5] = static_cast<float>(test::nan);
    }
    expect_same(call);
    if (HasFailure()) return;
  }
}

// Of a rank that has no NaN itself: all compute again when one has to.
TEST(SpecialNumbers, OneRankHasTheNaN) {
  for (const std::int64_t row : {0, 350, 699}) {
    SpreadCall call(masked("q > kv"));
    set(call.v, row, test::nan);
    expect_same(call);
    set(call.dout, row, inf);
    expect_same(call);
  }
}

TEST(SpecialCalls, SaveNothing) {
  Options options = masked("q >= kv");
  options.save = Save::nothing;
  SpreadCall call(options);
  call.find_whole();
  test::on_ranks(in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
    const td::Plan plan = call.plan(exchange);
    const Backward g = td::backward(call.attention, plan, call.mine(r), {}, call.rows(call.dout, r),
                                    std::nullopt, call.call);
    EXPECT_EQ(call.difference(r, g), "");
  });
}

TEST(SpecialCalls, EightBitsForward) {
  for (const DType type : {DType::e4m3, DType::e5m2, DType::i8}) {
    SpreadCall call(masked("q >= kv"));
    std::mt19937_64 engine = test::rng(1);
    for (Tensor* tensor : {&call.k, &call.v}) {
      Tensor narrow(type, tensor->shape());
      for (std::int64_t i = 0; i < narrow.count(); ++i)
        static_cast<std::uint8_t*>(narrow.view().data())[i] =
            static_cast<std::uint8_t>(engine() % 100);
      *tensor = std::move(narrow);
    }
    call.call.max = true;
    call.whole = call.attention.forward({call.q, call.k, call.v}, call.call);
    test::on_ranks(in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
      EXPECT_EQ(call.difference(r, call.forward(r, call.plan(exchange))), "");
    });
  }
}

double largest_difference(const ConstView& part, const ConstView& all, std::int64_t begin) {
  const Tensor a = base::convert(part, DType::f64),
               b = base::convert(test::rows_of(all, begin, begin + part.size(2)), DType::f64);
  double largest = 0;
  for (std::int64_t i = 0; i < a.count(); ++i)
    largest = std::max(largest, std::abs(a.data<double>()[static_cast<std::size_t>(i)] -
                                         b.data<double>()[static_cast<std::size_t>(i)]));
  return largest;
}

TEST(SpecialCalls, SumsPerRank) {
  for (const int ranks : {1, 2, 5}) {
    SpreadCall call(masked("q >= kv or kv < 40"), {.ranks = ranks});
    call.plan_options.sums = td::Sums::per_rank;
    call.find_whole();
    test::on_ranks(
        in_process_exchanges(ranks), [&](int r, const std::shared_ptr<Exchange>& exchange) {
          const td::Plan plan = call.plan(exchange);
          const Forward y = call.forward(r, plan);
          EXPECT_EQ(call.difference(r, y), "");
          const Backward g = call.backward(r, plan, y);
          if (ranks == 1) {
            EXPECT_EQ(call.difference(r, g), "");
          }
          EXPECT_EQ(SpreadCall::difference("dq", g.dq, call.gradients.dq, call.queries.begin(r),
                                           call.queries.end(r)),
                    "");
          EXPECT_LT(largest_difference(g.dk, call.gradients.dk, call.keys.begin(r)), 2e-5);
          EXPECT_LT(largest_difference(g.dv, call.gradients.dv, call.keys.begin(r)), 2e-5);
          EXPECT_EQ(plan.backward_moved(), plan.backward_traffic());
        });
  }
}

// [batch, length, heads, dim] in memory, or with gaps between elements.
Tensor moved(const ConstView& from, bool gaps, View& view) {
  Dims strides = gaps ? contiguous_strides(from.shape())
                      : Dims{from.size(1) * from.size(2) * from.size(3), from.size(3),
                             from.size(1) * from.size(3), 1};
  if (gaps)
    for (std::int64_t& stride : strides) stride *= 2;
  Tensor memory(from.dtype(), {std::max<std::int64_t>(2 * from.count(), 1)});
  view = View(memory.view().data(), from.dtype(), from.shape(), strides);
  base::copy(view, from);
  return memory;
}

TEST(SpecialCalls, StridesOfAnyKind) {
  for (const bool gaps : {false, true}) {
    // Two passes join rows, one does not.
    for (const char* mask : {"q >= kv", "q >= kv and (q - kv < 64 or (q - kv) % 64 == 0)"}) {
      SpreadCall call(masked(mask), {.batch = 2});
      call.find_whole();
      test::on_ranks(in_process_exchanges(3), [&](int r,
                                                  const std::shared_ptr<Exchange>& exchange) {
        const td::Plan plan = call.plan(exchange);
        std::vector<Tensor> memory;
        const auto place = [&](const ConstView& from) {
          View view(nullptr, from.dtype(), {0});
          memory.push_back(moved(from, gaps, view));
          return view;
        };
        const Inputs given = call.mine(r);
        const View q = place(given.q), k = place(given.k), v = place(given.v),
                   dout = place(call.rows(call.dout, r)), out = place(given.q), dq = place(given.q),
                   dk = place(given.k), dv = place(given.v);
        Tensor lse(DType::f32, {2, 4, call.queries.count(r)});
        const Inputs mine{q, k, v};
        td::forward_into(call.attention, plan, {out, lse.view(), std::nullopt}, mine, call.call);
        td::backward_into(call.attention, plan, {dq, dk, dv, {}, std::nullopt}, mine, {out, lse},
                          dout, std::nullopt, call.call);
        const auto contiguous = [](const View& view) { return base::convert(view, view.dtype()); };
        EXPECT_EQ(call.difference(r, Forward{contiguous(out), lse.clone(), Tensor()}), "");
        EXPECT_EQ(call.difference(
                      r, Backward{contiguous(dq), contiguous(dk), contiguous(dv), {}, Tensor()}),
                  "");
      });
    }
  }
}

// Results are written when nothing is read any more, on no rank.
TEST(SpecialCalls, ResultsInThePlaceOfInputs) {
  for (const char* mask : {"q >= kv", "q >= kv and (q - kv < 64 or (q - kv) % 64 == 0)"}) {
    SpreadCall call(masked(mask));
    call.find_whole();
    test::on_ranks(in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
      const td::Plan plan = call.plan(exchange);
      const auto copy = [](const ConstView& view) { return base::convert(view, view.dtype()); };
      const Inputs given = call.mine(r);
      Tensor q = copy(given.q), k = copy(given.k), v = copy(given.v);
      const Tensor dout = copy(call.rows(call.dout, r));
      Tensor lse(DType::f32, {1, 4, call.queries.count(r)});
      Tensor out = q.clone();
      td::forward_into(call.attention, plan, {out, lse.view(), std::nullopt}, {out, k, v},
                       call.call);
      EXPECT_EQ(call.difference(r, Forward{out.clone(), lse.clone(), Tensor()}), "");
      td::backward_into(call.attention, plan, {q, v, k, {}, std::nullopt}, {q, k, v}, {out, lse},
                        dout, std::nullopt, call.call);
      EXPECT_EQ(call.difference(r, Backward{q.clone(), v.clone(), k.clone(), {}, Tensor()}), "");
    });
  }
}

// Each rank with threads of its own: those of one executor would wait for one another.
TEST(SpecialCalls, SeveralThreadsInARank) {
  Options options = masked("q >= kv and (q - kv < 300 or kv % 64 < 3)");
  const auto table = std::make_shared<Tensor>(DType::f32, Dims{4});
  options.score_mod = parse("score + table[h]", {Capture("table", table)});
  options.gradients = {"table"};
  SpreadCall call(options, {.batch = 2, .queries = 1500});
  call.find_whole();
  for (const int threads : {2, 3}) {
    test::on_ranks(
        in_process_exchanges(3, {.seed = 5, .delay = std::chrono::milliseconds(2)}),
        [&](int r, const std::shared_ptr<Exchange>& exchange) {
          Call with = call.call;
          with.executor = tbb_executor(threads);
          const td::Plan plan = call.plan(exchange);
          for (int i = 0; i < 3; ++i) {
            const Forward y = td::forward(call.attention, plan, call.mine(r), with);
            EXPECT_EQ(call.difference(r, y), "");
            EXPECT_EQ(
                call.difference(r, td::backward(call.attention, plan, call.mine(r), {y.out, y.lse},
                                                call.rows(call.dout, r), std::nullopt, with)),
                "");
          }
        });
  }
}

TEST(SpecialCalls, TinyAndEmpty) {
  struct Size {
    std::int64_t batch, queries, keys;
  };
  for (const Size& size : {Size{1, 1, 1},
                           {1, 1, 900},
                           {2, 3, 0},
                           {2, 0, 5},
                           {0, 7, 7},
                           {1, 0, 0},
                           {3, 2, 700},
                           {1, 700, 1}}) {
    SCOPED_TRACE(fmt::format("{} x {} queries, {} keys", size.batch, size.queries, size.keys));
    for (const char* mask :
         {"true", "q >= kv", "q >= kv and (q - kv < 64 or (q - kv) % 64 == 0)"}) {
      for (const int ranks : {1, 2, 4}) {
        SpreadCall call(
            masked(mask),
            {.ranks = ranks, .batch = size.batch, .queries = size.queries, .keys = size.keys});
        expect_same(call);
        // All of it on the last rank.
        call.queries.starts.assign(static_cast<std::size_t>(ranks) + 1, 0);
        call.keys.starts = call.queries.starts;
        call.queries.starts.back() = size.queries;
        call.keys.starts.back() = size.keys;
        expect_same(call);
      }
    }
  }
}

// Sinks and gradients of captures where some ranks have nothing.
TEST(SpecialCalls, EmptyShardsWithGradients) {
  Options options = masked("q >= kv");
  options.score_mod = parse("score + table[h, kv]",
                            {Capture("table", std::make_shared<Tensor>(DType::f32, Dims{4, 300}))});
  options.gradients = {"table"};
  SpreadCall call(options, {.ranks = 4, .queries = 300});
  const Tensor sinks(DType::f32, {4});
  call.call.sinks = ConstView(sinks);
  call.queries.starts = {0, 0, 300, 300, 300};
  call.keys.starts = {0, 5, 5, 5, 300};
  expect_same(call);
}

TEST(SpecialCalls, ScoreModsShareAPlan) {
  const SpreadCall plain(masked("q >= kv"));
  Options capped = masked("q >= kv");
  capped.score_mod = parse("20.0 * tanh(score * 0.05)", {});
  SpreadCall one(masked("q >= kv")), two(capped);
  one.find_whole();
  two.find_whole();
  test::on_ranks(in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
    const td::Plan plan = one.plan(exchange);
    const Forward y = one.forward(r, plan), z = two.forward(r, plan);
    EXPECT_EQ(two.difference(r, two.backward(r, plan, z)), "");
    EXPECT_EQ(one.difference(r, one.backward(r, plan, y)), "");
  });
}

TEST(SpecialCalls, SeveralPlansOnOneExchange) {
  std::vector<std::unique_ptr<SpreadCall>> calls;
  calls.push_back(std::make_unique<SpreadCall>(masked("q >= kv")));
  calls.push_back(
      std::make_unique<SpreadCall>(masked("abs(q - kv) < 50"), SpreadShape{.queries = 333}));
  calls.push_back(
      std::make_unique<SpreadCall>(masked("q > 1000"), SpreadShape{.dtype = DType::f16}));
  for (const auto& call : calls) call->find_whole();
  test::on_ranks(in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
    std::vector<td::Plan> plans;
    std::vector<Forward> forwards(3);
    for (const auto& call : calls) plans.push_back(call->plan(exchange));
    for (int layer = 0; layer < 2; ++layer) {
      for (std::size_t i = 0; i < 3; ++i) forwards[i] = calls[i]->forward(r, plans[i]);
      for (std::size_t i = 3; i-- > 0;) {
        EXPECT_EQ(calls[i]->difference(r, forwards[i]), "");
        EXPECT_EQ(calls[i]->difference(r, calls[i]->backward(r, plans[i], forwards[i])), "");
      }
    }
    // A plan goes before the others end.
    plans.erase(plans.begin());
    EXPECT_EQ(calls[1]->differences(r, plans[0]), "");
  });
}

// Messages that take long, and ranks that come late, change nothing.
TEST(SpecialCalls, LateRanks) {
  SpreadCall call(masked("q >= kv"));
  call.find_whole();
  test::on_ranks(in_process_exchanges(3, {.delay = std::chrono::milliseconds(5)}),
                 [&](int r, const std::shared_ptr<Exchange>& exchange) {
                   const td::Plan plan = call.plan(exchange);
                   for (int i = 0; i < 3; ++i) {
                     if (r == i) std::this_thread::sleep_for(std::chrono::milliseconds(30));
                     EXPECT_EQ(call.differences(r, plan), "");
                   }
                 });
}

// One table for all heads: its gradient is a chain over them, so one rank has all heads of a chunk. Who joins rows may
// have some heads all the same.
TEST(SpecialCalls, JoinHeadsApartThatWorkDoesNotDivide) {
  Options options;
  auto table = std::make_shared<Tensor>(DType::f32, Dims{1300, 1300});
  const std::vector<Capture> captures{{"table", table}};
  options.mask = parse("q >= kv", captures);
  options.score_mod = parse("score + table[q, kv]", captures);
  options.gradients = {"table"};
  test::SpreadCall call(options, {.ranks = 2, .queries = 1300});
  call.find_whole();
  test::on_ranks(in_process_exchanges(2, {.seed = 1}), [&](int rank, const auto& exchange) {
    const distributed::Plan plan = distributed::make_plan(
        call.attention, exchange, test::SpreadCall::spec(call.q), test::SpreadCall::spec(call.k),
        test::SpreadCall::spec(call.v), call.queries, call.keys, call.call, call.plan_options,
        [](const distributed::Plan::Held& held, std::span<const distributed::PassWork>) {
          const distributed::PassPlan& pass = held.passes.front();
          const distributed::Piece all{
              .leaves = pass.leaves(), .batch = 1, .key_heads = 2, .tiles = {}};
          std::vector<distributed::Piece> pieces;
          for (const int r : {0, 1}) {
            distributed::Piece piece = all;
            piece.rank = r;
            piece.chunks = {r, r + 1};
            pieces.push_back(piece);
            piece.chunks = {};
            piece.key_heads = {r, r + 1};
            piece.tiles = pass.tiles.count();
            pieces.push_back(piece);
          }
          return pieces;
        });
    EXPECT_EQ(call.differences(rank, plan), "");
  });
}

// Several heads of each of two terms add to one element of the table: each term's sum is complete
// before it is added to the other's, on one machine, too.
TEST(SpecialCalls, TermsThatAddToOneElement) {
  Tensor table(DType::f32, {400, 400});
  for (std::int64_t i = 0; float& x : table.data<float>())
    x = static_cast<float>(i++ % 7) * 0.25F - 0.75F;
  Options options;
  options.mask =
      parse("q >= kv and ((h % 2 == 0 and q - kv < 50) or (h % 2 == 1 and (q - kv) % 16 == 0))");
  options.score_mod = parse("score + table[q, kv]", {{"table", table}});
  options.gradients = {"table"};
  SpreadCall call(options, {.heads = 6, .key_heads = 3, .queries = 400});
  call.find_whole();
  test::on_ranks(in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
    const td::Plan plan = call.plan(exchange);
    ASSERT_EQ(plan.held().passes.size(), 2U);
    EXPECT_EQ(call.differences(r, plan), "") << "rank " << r;
  });
}

}  // namespace
}  // namespace treadle
