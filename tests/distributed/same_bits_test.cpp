// A distributed call has the bits of one machine's, whoever computes what.
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <optional>
#include <random>

#include "base/copy.h"
#include "distributed/held_plan.h"
#include "fuzz.h"
#include "random_pieces.h"
#include "rank_threads.h"
#include "rows.h"
#include "treadle/distributed.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

namespace td = distributed;

using test::Exchanges;

using test::Random;
using test::random_shards;
using test::random_tensor;
using test::rows_of;
using test::same_bits;

struct Form {
  std::string mask, score;
  std::vector<Capture> captures;
  std::vector<std::string> gradients;
  test::MayDivide may;
  std::vector<std::shared_ptr<Tensor>> held;
  std::optional<td::ShardedCapture> sharded = {};
};

struct Lengths {
  std::int64_t batch, heads, queries, keys;
};

Form random_form(Random& random, const Lengths& s) {
  Form form;
  const std::vector<std::string> masks{
      "true",
      "q >= kv",
      "q >= kv",
      "q - kv < 200 and q >= kv",
      "abs(q - kv) <= 37",
      "kv < 100 or q >= kv",
      "q >= kv and (q - kv < 64 or (q - kv) % 64 == 0)",
      "q >= kv and (q // 32 == kv // 32 or kv % 32 >= 28)",
      "q >= kv and (q - kv) % 8 == 0",
      "(h % 2 == 0 and q - kv < 50 and q >= kv) or (h % 2 == 1 and q >= kv and (q - kv) % 16 == 0)",
      "doc[q] == doc[kv] and q >= kv",
      "b == 0 or abs(q - kv) < 100",
      "kv < 32 or q < 32 or abs(q - kv) < 40",
      "q > kv + 700",
  };
  form.mask = masks[static_cast<std::size_t>(random(std::ssize(masks)))];
  if (form.mask.find("doc") != std::string::npos) {
    auto doc = std::make_shared<Tensor>(DType::i32, Dims{std::max(s.queries, s.keys)});
    std::int32_t number = 0;
    for (std::int32_t& x : doc->data<std::int32_t>()) {
      if (random.one_in(150)) ++number;
      x = number;
    }
    form.captures.emplace_back("doc", doc);
    form.held.push_back(doc);
  }
  struct Score {
    std::string text;
    Dims shape;
    test::MayDivide may;
    std::optional<td::ShardedCapture> sharded = {};
  };
  using Like = td::ShardedCapture::Like;
  const std::int64_t longest = std::max(s.queries, s.keys);
  const std::vector<Score> scores{
      {"score", {}, {}},
      {"score", {}, {}},
      {"score * 0.5 + float(h) * float(kv - q) * 0.001", {}, {}},
      {"20.0 * tanh(score * 0.05)", {}, {}},
      {"score + table[h]", {s.heads}, {}},
      {"score + table[h, kv]", {s.heads, s.keys}, {}, {{"table", Like::keys, 1}}},
      {"score + table[q] * 0.5", {s.queries}, {}, {{"table", Like::queries, 0}}},
      {"score + table[q - kv + " + std::to_string(longest) + "]", {2 * longest + 1}, {}},
      {"score + table[q, kv]",
       {s.queries, s.keys},
       {.heads = false, .batch = false},
       {{"table", Like::queries, 0}}},
      {"score + table[h, q, kv]",
       {s.heads, s.queries, s.keys},
       {.batch = false},
       {{"table", Like::keys, 2}}},
      {"score + table[b, h] * float(q - kv) * 0.01", {s.batch, s.heads}, {}},
  };
  const Score& score = scores[static_cast<std::size_t>(random(std::ssize(scores)))];
  form.score = score.text;
  if (!score.shape.empty() && count_of(score.shape) < 3'000'000) {
    auto table = std::make_shared<Tensor>(random_tensor(random, DType::f32, score.shape));
    form.captures.emplace_back("table", table);
    form.held.push_back(table);
    if (score.sharded && random.one_in(2)) form.sharded = score.sharded;
    if (!random.one_in(4)) {
      form.gradients = {"table"};
      form.may = score.may;
    }
  } else {
    form.score = "score";
  }
  return form;
}

class Case {
 public:
  explicit Case(std::uint64_t seed) : engine_(test::rng(seed)), random_{engine_}, seed_(seed) {
    ranks_ = static_cast<int>(1 + random_(8));
    const bool one_shot = random_.one_in(3);
    s_.batch = 1 + random_(one_shot ? 1 : 3);
    key_heads_ = 1 + random_(3);
    s_.heads = key_heads_ * (1 + random_(3));
    const std::int64_t longest = random_.one_in(3) ? 2600 : 600;
    s_.queries = 1 + random_(longest);
    s_.keys = random_.one_in(3) ? 1 + random_(longest) : s_.queries;
    const std::vector<std::int64_t> dims{16, 24, 33, 64};
    const std::int64_t dim = dims[static_cast<std::size_t>(random_(4))];
    const std::int64_t value_dim =
        random_.one_in(3) ? dims[static_cast<std::size_t>(random_(4))] : dim;
    const std::int64_t key_batch = random_.one_in(3) ? 1 : s_.batch;
    const std::vector<DType> types{DType::f32,  DType::f32, DType::f32,
                                   DType::bf16, DType::f16, DType::f64};
    const auto type = [&] { return types[static_cast<std::size_t>(random_(std::ssize(types)))]; };
    const DType tq = type(), tk = random_.one_in(3) ? type() : tq,
                tv = random_.one_in(3) ? type() : tk;
    compute_ = tq == DType::f64 || tk == DType::f64 || tv == DType::f64 ? DType::f64 : DType::f32;
    form_ = random_form(random_, s_);
    // Entries that share keys join their leaves in one tree, which a captured gradient's sums follow.
    if (key_batch == 1 && s_.batch > 1 && !form_.gradients.empty()) form_.may.batch = false;
    q_ = random_tensor(random_, tq, {s_.batch, s_.heads, s_.queries, dim});
    k_ = random_tensor(random_, tk, {key_batch, key_heads_, s_.keys, dim});
    v_ = random_tensor(random_, tv, {key_batch, key_heads_, s_.keys, value_dim});
    dout_ = random_tensor(random_, tq, {s_.batch, s_.heads, s_.queries, value_dim});
    if (random_.one_in(2))
      dlse_ = random_tensor(random_, compute_, {s_.batch, s_.heads, s_.queries});
    queries_ = random_shards(random_, s_.queries, ranks_);
    keys_ = random_shards(random_, s_.keys, ranks_);
    call_.lse = true;
    call_.max = random_.one_in(2);
    if (random_.one_in(3)) call_.dropout = {.probability = 0.25, .seed = seed, .offset = 3};
    if (random_.one_in(3)) {
      sinks_ = random_tensor(random_, DType::f32, {s_.heads});
      call_.sinks = ConstView(sinks_);
    }
    call_.executor = serial_executor();
    if (form_.sharded) options_.sharded = {*form_.sharded};
    pieces_seed_ = engine_();
    planned_ = random_.one_in(2);
  }

  std::string text() const {
    return fmt::format(
        "{} ranks, {} x {}/{} x {} x {} keys, q {} k {} v {} dims {} {}, mask {}, score {}, "
        "gradients {}, {}",
        ranks_, s_.batch, s_.heads, key_heads_, s_.queries, s_.keys, name_of(q_.dtype()),
        name_of(k_.dtype()), name_of(v_.dtype()), q_.size(3), v_.size(3), form_.mask, form_.score,
        form_.gradients.size(), planned_ ? "planned" : "random pieces");
  }

  void run() {
    SCOPED_TRACE(text());
    Options options;
    options.mask = parse(form_.mask, form_.captures);
    options.score_mod = parse(form_.score, form_.captures);
    options.gradients = form_.gradients;
    const Attention attention = compile(options);
    const Forward whole = attention.forward({q_, k_, v_}, call_);
    std::optional<ConstView> dlse;
    if (dlse_) dlse = *dlse_;
    const Backward gradients =
        attention.backward({q_, k_, v_}, {whole.out, whole.lse}, dout_, dlse, call_);
    // Assertions of other threads would not say which case it was.
    std::mutex mutex;
    std::string failures;
    const auto fail = [&](const std::string& what) {
      const std::lock_guard lock(mutex);
      failures += what + '\n';
    };
    test::on_ranks(in_process_exchanges(ranks_, {.seed = seed_}), [&](int r,
                                                                      const std::shared_ptr<
                                                                          Exchange>& exchange) {
      // A sharded capture: this rank's rows of it.
      Call call = call_;
      const auto own_slice = [&](const ConstView& all) {
        if (!form_.sharded) return all;
        const td::Shards& shards =
            form_.sharded->like == td::ShardedCapture::Like::queries ? queries_ : keys_;
        return rows_of(all, shards.begin(r), shards.end(r), form_.sharded->axis);
      };
      if (form_.sharded) call.captures.emplace_back("table", own_slice(*form_.held.back()));
      const td::Plan plan = make(attention, exchange, call);
      const auto q_rows = [&](const ConstView& view) {
        return rows_of(view, queries_.begin(r), queries_.end(r));
      };
      const auto k_rows = [&](const ConstView& view) {
        return rows_of(view, keys_.begin(r), keys_.end(r));
      };
      const Inputs mine{q_rows(q_), k_rows(k_), k_rows(v_)};
      const Forward y = td::forward(attention, plan, mine, call);
      const auto expect = [&](std::string_view name, const ConstView& part, const ConstView& all,
                              const td::Shards& shards) {
        std::string where;
        if (!same_bits(part, all, shards.begin(r), shards.end(r), where))
          fail(fmt::format("{} of rank {}: {}", name, r, where));
      };
      expect("out", y.out, whole.out, queries_);
      expect("lse", y.lse, whole.lse, queries_);
      if (call_.max) expect("max", y.max, whole.max, queries_);
      const auto expect_traffic = [&](std::string_view name, const td::Traffic& moved,
                                      const td::Traffic& announced) {
        if (!(moved == announced))
          fail(fmt::format(
              "{} of rank {} sent {} and received {} bytes in {} messages, announced {}, {}, {}",
              name, r, moved.sent, moved.received, moved.messages, announced.sent,
              announced.received, announced.messages));
      };
      const auto expect_whole = [&](std::string_view name, const ConstView& got,
                                    const ConstView& all) {
        const Tensor expected = base::convert(all, all.dtype());  // of a slice: contiguous
        const auto bytes = static_cast<std::size_t>(got.count()) * size_of(got.dtype());
        if (got.shape() != all.shape() ||
            std::memcmp(got.data(), expected.view().data(), bytes) != 0)
          fail(fmt::format("gradient of {}, rank {}", name, r));
      };
      if (!call_.max) expect_traffic("forward", plan.forward_moved(), plan.forward_traffic());
      std::optional<ConstView> own_dlse;
      if (dlse) own_dlse = q_rows(*dlse);
      const Backward g =
          td::backward(attention, plan, mine, {y.out, y.lse}, q_rows(dout_), own_dlse, call);
      expect("dq", g.dq, gradients.dq, queries_);
      expect("dk", g.dk, gradients.dk, keys_);
      expect("dv", g.dv, gradients.dv, keys_);
      for (std::size_t c = 0; c < g.captures.size(); ++c)
        expect_whole("a capture", g.captures[c].gradient,
                     own_slice(gradients.captures[c].gradient));
      if (call_.sinks) expect_whole("sinks", g.dsinks, gradients.dsinks);
      expect_traffic("backward", plan.backward_moved(), plan.backward_traffic());
    });
    EXPECT_EQ(failures, "");
  }

 private:
  td::Plan make(const Attention& attention, const std::shared_ptr<Exchange>& exchange,
                const Call& call) const {
    const auto spec = [](const Tensor& t) { return TensorSpec(t.dtype(), t.shape()); };
    if (planned_)
      return td::plan(attention, exchange, spec(q_), spec(k_), spec(v_), queries_, keys_, call,
                      options_);
    return td::make_plan(attention, exchange, spec(q_), spec(k_), spec(v_), queries_, keys_, call,
                         options_, [&](td::Plan::Held& held, std::span<const td::PassWork>) {
                           std::mt19937_64 random(pieces_seed_);
                           test::MayDivide may = form_.may;
                           for (const td::PassPlan& pass : held.passes)
                             may.chunks = may.chunks &&
                                          (pass.chunks_per_task == 1 || form_.gradients.empty());
                           return test::RandomPieces(random, ranks_, may).make(held);
                         });
  }

  std::mt19937_64 engine_;
  Random random_;
  std::uint64_t seed_, pieces_seed_ = 0;
  int ranks_ = 1;
  Lengths s_{};
  std::int64_t key_heads_ = 1;
  DType compute_ = DType::f32;
  Form form_;
  Tensor q_, k_, v_, dout_, sinks_;
  std::optional<Tensor> dlse_;
  td::Shards queries_, keys_;
  td::PlanOptions options_;
  Call call_;
  bool planned_ = false;
};

TEST(SameBits, WhoeverComputesWhat) {
  for (int round = 0; round < test::fuzz_count(150); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Case(seed).run();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace treadle
