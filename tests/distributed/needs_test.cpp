// What travels, against the dense mask: every key row that a part looks at is its rank's own or comes to it, once; what
// one rank sends is what the other receives; all leaves, heads and chunks are computed once.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "api/compiled.h"
#include "brute_layout.h"
#include "distributed/held_plan.h"
#include "plan/chunks.h"
#include "random_pieces.h"
#include "spread_call.h"

namespace treadle {
namespace {

namespace td = distributed;

using layout::Range;
using test::Random;
using test::SpreadCall;
using test::SpreadShape;

// What a rank knows of a plan, kept after its exchange.
struct Known {
  std::vector<td::PartShape> parts;
  std::vector<td::Piece> away;
  std::vector<std::vector<td::RowRun>> rows_of_self;
  std::vector<td::KeyNeeds> from, to;
  td::Traffic forward, backward;
  std::vector<td::PassPlan> passes;
};

class Travel {
 public:
  Travel(std::uint64_t seed, const std::string& mask) : engine_(test::rng(seed)) {
    Random random{engine_};
    shape_ = {.ranks = static_cast<int>(1 + random(6)),
              .batch = 1 + random(2),
              .heads = 4,
              .key_heads = 2,
              .queries = 1 + random(400),
              .dim = 8,
              .seed = seed};
    shape_.keys = random.one_in(2) ? shape_.queries : 1 + random(900);
    Options options;
    options.mask = parse(mask, {});
    call_ = std::make_unique<SpreadCall>(options, shape_);
    call_->queries = test::random_shards(random, shape_.queries, shape_.ranks);
    call_->keys = test::random_shards(random, shape_.keys, shape_.ranks);
    const bool planned = random.one_in(2);
    const std::uint64_t pieces_seed = engine_();
    known_.resize(static_cast<std::size_t>(shape_.ranks));
    test::on_ranks(in_process_exchanges(shape_.ranks, {.seed = seed}),
                   [&](int r, const std::shared_ptr<Exchange>& exchange) {
                     const td::Plan plan =
                         planned
                             ? call_->plan(exchange)
                             : td::make_plan(
                                   call_->attention, exchange, SpreadCall::spec(call_->q),
                                   SpreadCall::spec(call_->k), SpreadCall::spec(call_->v),
                                   call_->queries, call_->keys, call_->call, call_->plan_options,
                                   [&](td::Plan::Held& held, std::span<const td::PassWork>) {
                                     std::mt19937_64 dice(pieces_seed);
                                     return test::RandomPieces(dice, shape_.ranks, {}).make(held);
                                   });
                     const td::Plan::Held& held = plan.held();
                     Known& known = known_[static_cast<std::size_t>(r)];
                     for (const td::Part& part : held.parts) known.parts.push_back(part);
                     known.from = held.from;
                     known.to = held.to;
                     known.forward = held.forward;
                     known.backward = held.backward;
                     known.passes = held.passes;
                   });
    find_sight(options);
  }

  void check() const {
    check_work();
    check_needs();
    check_both_ends();
  }

 private:
  // Everything that the mask shows has a leaf, a head and a chunk that some rank computes, once.
  void check_work() const {
    using Cell = std::array<std::int64_t, 5>;  // pass, leaf, b, key head, chunk
    std::map<Cell, int> times;
    for (const Known& known : known_)
      for (const td::PartShape& part : known.parts)
        for_each(part.piece.leaves, [&](std::int64_t leaf) {
          for_each(part.piece.batch, [&](std::int64_t b) {
            for_each(part.piece.key_heads, [&](std::int64_t h) {
              for_each(part.piece.chunks,
                       [&](std::int64_t c) { ++times[{part.piece.pass, leaf, b, h, c}]; });
            });
          });
        });
    for (const auto& [cell, count] : times) ASSERT_EQ(count, 1);
    const auto& passes = known_.front().passes;
    for_each_visible([&](std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t kv) {
      bool computed = false;
      for (std::size_t pass = 0; pass < passes.size(); ++pass)
        computed =
            computed || times.contains({static_cast<std::int64_t>(pass), leaf_of(passes[pass], q),
                                        b, h / 2, plan::chunks_of({kv, kv + 1}).begin});
      ASSERT_TRUE(computed) << "b " << b << " h " << h << " q " << q << " kv " << kv;
    });
  }

  // Of every visible pair, some rank that has the pair's leaf and chunk has the key, too.
  void check_needs() const {
    const auto& passes = known_.front().passes;
    for_each_visible([&](std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t kv) {
      bool has = false;
      for (int r = 0; r < shape_.ranks && !has; ++r) {
        const Known& known = known_[static_cast<std::size_t>(r)];
        for (const td::PartShape& part : known.parts) {
          const td::Piece& p = part.piece;
          const std::int64_t chunk = plan::chunks_of({kv, kv + 1}).begin;
          if (!contains(p.leaves, leaf_of(passes[static_cast<std::size_t>(p.pass)], q)) ||
              !contains(p.batch, b) || !contains(p.key_heads, h / 2) || !contains(p.chunks, chunk))
            continue;
          has = has || call_->keys.owner(kv) == r || times_received(r, b, h / 2, kv) > 0;
        }
      }
      ASSERT_TRUE(has) << "key " << kv << " of b " << b << " h " << h << " query " << q;
    });
    for (int r = 0; r < shape_.ranks; ++r)
      for (std::int64_t b = 0; b < shape_.batch; ++b)
        for (std::int64_t h = 0; h < shape_.key_heads; ++h)
          for (std::int64_t kv = 0; kv < shape_.keys; ++kv)
            ASSERT_LE(times_received(r, b, h, kv), call_->keys.owner(kv) == r ? 0 : 1);
  }

  // What goes from one rank to another is what that one expects; and all of it is somebody's.
  void check_both_ends() const {
    td::Traffic forward, backward;
    for (int r = 0; r < shape_.ranks; ++r) {
      const Known& known = known_[static_cast<std::size_t>(r)];
      for (int other = 0; other < shape_.ranks; ++other) {
        const td::KeyNeeds& sent = known.to[static_cast<std::size_t>(other)];
        const td::KeyNeeds& received =
            known_[static_cast<std::size_t>(other)].from[static_cast<std::size_t>(r)];
        for (std::int64_t b = 0; b < shape_.batch; ++b)
          for (std::int64_t h = 0; h < shape_.key_heads; ++h) {
            ASSERT_EQ(sent.of(b, h), received.of(b, h)) << "from " << r << " to " << other;
            for (const Range& range : sent.of(b, h)) {
              ASSERT_GE(range.begin, call_->keys.begin(r));
              ASSERT_LE(range.end, call_->keys.end(r));
            }
          }
      }
      forward.sent += known.forward.sent;
      forward.received += known.forward.received;
      backward.sent += known.backward.sent;
      backward.received += known.backward.received;
    }
    EXPECT_EQ(forward.sent, forward.received);
    EXPECT_EQ(backward.sent, backward.received);
  }

  int times_received(int rank, std::int64_t b, std::int64_t h, std::int64_t kv) const {
    int times = 0;
    for (const td::KeyNeeds& needs : known_[static_cast<std::size_t>(rank)].from)
      for (const Range& range : needs.of(b, h)) times += contains(range, kv) ? 1 : 0;
    return times;
  }

  static bool contains(const Range& range, std::int64_t at) {
    return at >= range.begin && at < range.end;
  }
  template <class F>
  static void for_each(const Range& range, const F& f) {
    for (std::int64_t i = range.begin; i < range.end; ++i) f(i);
  }
  static std::int64_t leaf_of(const td::PassPlan& pass, std::int64_t query) {
    for (std::int64_t tile = 0; tile < pass.tiles.count(); ++tile)
      for (std::int64_t i = 0; i < pass.tiles.size(tile); ++i)
        if (pass.tiles.query(tile, i) == query) return tile / pass.tiles_per_leaf;
    return -1;
  }

  void find_sight(const Options& options) {
    const Attention attention = compile(options);
    const ir::Graph& mask = attention.compiled().program.mask;
    const layout::Extent extent{shape_.batch, shape_.heads, shape_.queries, shape_.keys};
    for (std::int64_t b = 0; b < shape_.batch; ++b)
      for (std::int64_t h = 0; h < shape_.heads; ++h)
        sights_.push_back(test::every_pair({mask, {}}, extent, b, h));
  }
  // Some of them: there are too many to look at all.
  template <class F>
  void for_each_visible(const F& f) const {
    std::mt19937_64 random(shape_.seed);
    for (std::size_t i = 0; i < sights_.size(); ++i) {
      for (int n = 0; n < 150 && !testing::Test::HasFatalFailure(); ++n) {
        const std::int64_t q = test::random_int(random, 0, shape_.queries - 1),
                           kv = test::random_int(random, 0, shape_.keys - 1);
        if (sights_[i][static_cast<std::size_t>(q * shape_.keys + kv)] != test::Sight::visible)
          continue;
        const auto at = static_cast<std::int64_t>(i);
        f(at / shape_.heads, at % shape_.heads, q, kv);
      }
    }
  }

  std::mt19937_64 engine_;
  SpreadShape shape_;
  std::unique_ptr<SpreadCall> call_;
  std::vector<Known> known_;
  std::vector<std::vector<test::Sight>> sights_;  // [b][h], [q][kv]
};

TEST(Travelling, RowsComeOnceToWhoLooksAtThem) {
  const std::vector<std::string> masks{
      "true",
      "q >= kv",
      "abs(q - kv) <= 37",
      "q >= kv and (q - kv < 64 or (q - kv) % 64 == 0)",
      "q >= kv and (q // 32 == kv // 32 or kv % 32 >= 28)",
      "(h % 2 == 0 and q - kv < 50 and q >= kv) or (h % 2 == 1 and q >= kv and (q - kv) % 16 == 0)",
      "b == 0 or abs(q - kv) < 100",
      "kv < 32 or q < 32 or abs(q - kv) < 40",
      "q > kv + 700"};
  for (int round = 0; round < test::fuzz_count(150); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Travel(seed, masks[seed % masks.size()]).check();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace treadle
