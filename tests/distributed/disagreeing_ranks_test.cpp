// Ranks that do not make the same call: an error on all of them, the same, and soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <functional>
#include <optional>

#include "expect_error.h"
#include "spread_call.h"

namespace treadle {
namespace {

namespace td = distributed;

using test::on_ranks;
using test::SpreadCall;
using test::texts_of_ranks;
using testing::Each;
using testing::HasSubstr;

using OfRank = std::function<void(int, const std::shared_ptr<Exchange>&)>;

// All three throw this text.
void expect_all_throw(const OfRank& rank, const std::string& text, int ranks = 3) {
  EXPECT_THAT(texts_of_ranks(in_process_exchanges(ranks), rank), Each(text));
}
// So they do where `odd` is what rank 1 does and `usual` what the others do.
void expect_odd(const SpreadCall& usual, const SpreadCall& odd, const std::string& text) {
  expect_all_throw(
      [&](int r, const auto& exchange) { (void)(r == 1 ? odd : usual).plan(exchange); }, text);
}

Options of_mask(const std::string& mask) {
  Options options;
  options.mask = parse(mask, {});
  return options;
}

Options of_documents(std::int32_t last) {
  auto documents = std::make_shared<Tensor>(DType::i32, Dims{700});
  documents->data<std::int32_t>()[699] = last;
  Options options;
  options.mask = parse("doc[q] == doc[kv]", {Capture("doc", documents)});
  return options;
}

class Disagreeing : public testing::Test {
 protected:
  SpreadCall usual_{of_mask("q >= kv")};
};

TEST_F(Disagreeing, Lengths) {
  expect_odd(usual_, SpreadCall(of_mask("q >= kv"), {.queries = 701}),
             "plan: rank 1 has q f32 [1, 4, 701, 16], rank 0 has f32 [1, 4, 700, 16]; it must be "
             "the same on all ranks");
  expect_odd(usual_, SpreadCall(of_mask("q >= kv"), {.keys = 640}),
             "plan: rank 1 has k f32 [1, 2, 640, 16], rank 0 has f32 [1, 2, 700, 16]; it must be "
             "the same on all ranks");
}

TEST_F(Disagreeing, Types) {
  expect_odd(usual_, SpreadCall(of_mask("q >= kv"), {.dtype = DType::bf16}),
             "plan: rank 1 has q bf16 [1, 4, 700, 16], rank 0 has f32 [1, 4, 700, 16]; it must be "
             "the same on all ranks");
}

TEST_F(Disagreeing, Shards) {
  SpreadCall odd(of_mask("q >= kv"));
  odd.keys.starts = {0, 100, 300, 700};
  expect_odd(usual_, odd,
             "plan: rank 1 has shards of keys that start at 0, 100, 300, 700, rank 0 has that "
             "start at 0, 234, 468, 700; it must be the same on all ranks");
}

TEST_F(Disagreeing, PlanOptions) {
  SpreadCall odd(of_mask("q >= kv"));
  odd.plan_options.sums = td::Sums::per_rank;
  expect_odd(usual_, odd,
             "plan: rank 1 has options 25 Gbit/s, 0 TFLOP/s, excess 0.02, 0 head groups, sums "
             "per_rank, patience 100000 ms, rank 0 has 25 Gbit/s, 0 TFLOP/s, excess 0.02, 0 head "
             "groups, sums same_bits, patience 100000 ms; it must be the same on all ranks");
}

TEST_F(Disagreeing, Masks) {
  const std::vector<std::string> texts = texts_of_ranks(
      in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
        (void)SpreadCall(of_mask(r == 1 ? "q > kv" : "q >= kv")).plan(exchange);
      });
  EXPECT_THAT(texts, Each(texts.front()));
  EXPECT_THAT(texts.front(), testing::MatchesRegex("plan: rank 1 has a mask with hash [0-9a-f]+, "
                                                   "rank 0 has [0-9a-f]+; it must be the same on "
                                                   "all ranks"));
}

TEST_F(Disagreeing, CapturesOfTheMask) {
  const SpreadCall usual(of_documents(0)), odd(of_documents(1));
  const std::vector<std::string> texts = texts_of_ranks(
      in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
        (void)(r == 1 ? odd : usual).plan(exchange);
      });
  EXPECT_THAT(texts, Each(texts.front()));
  EXPECT_THAT(
      texts.front(),
      testing::StartsWith("plan: rank 1 has captures of the mask: doc i32 [700] with contents "));
}

TEST_F(Disagreeing, Targets) {
  Options options = of_mask("q >= kv");
  options.target = "haswell";
  const SpreadCall odd(options);
  const std::vector<std::string> texts = texts_of_ranks(
      in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
        (void)(r == 1 ? odd : usual_).plan(exchange);
      });
  EXPECT_THAT(texts, Each(texts.front()));
  EXPECT_THAT(texts.front(), testing::StartsWith("plan: rank 1 has the build Treadle "));
  EXPECT_THAT(texts.front(), HasSubstr("haswell"));
  // A plan for one is none for the other.
  const std::vector<std::string> later = texts_of_ranks(
      in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
        (void)odd.forward(r, usual_.plan(exchange));
      });
  EXPECT_THAT(later, Each(later.front()));
  EXPECT_THAT(later.front(), testing::StartsWith("forward: rank 0: the plan is for Treadle "));
}

// After plans that agree.
class DisagreeingCalls : public Disagreeing {
 protected:
  // Rank 1 does one thing and the others another, after which a right call is right.
  void expect_calls(const std::function<void(int, const td::Plan&)>& odd,
                    const std::function<void(int, const td::Plan&)>& usual,
                    const std::string& text) {
    usual_.find_whole();
    std::vector<std::string> thrown(3);
    test::on_ranks(in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
      const td::Plan plan = usual_.plan(exchange);
      try {
        (r == 1 ? odd : usual)(r, plan);
      } catch (const Error& error) {
        thrown[static_cast<std::size_t>(r)] = error.what();
      }
      EXPECT_EQ(usual_.differences(r, plan), "");
    });
    EXPECT_THAT(thrown, Each(text));
  }
  void forward(int r, const td::Plan& plan) const { (void)usual_.forward(r, plan); }
  void forward_by(const Options& options, int r, const td::Plan& plan) const {
    (void)td::forward(compile(options), plan, usual_.mine(r), usual_.call);
  }
};

constexpr const char* other_contents =
    "forward: rank 1 has another score mod, or other types or shapes of captures, sinks, dropout "
    "or "
    "results than rank 0; they must be the same on all ranks";

TEST_F(DisagreeingCalls, ScoreMods) {
  Options other = of_mask("q >= kv");
  other.score_mod = parse("score * 2.0", {});
  expect_calls([&](int r, const auto& plan) { forward_by(other, r, plan); },
               [&](int r, const auto& plan) { forward(r, plan); }, other_contents);
  Options scaled = of_mask("q >= kv");
  scaled.scale = 0.1;
  expect_calls([&](int r, const auto& plan) { forward_by(scaled, r, plan); },
               [&](int r, const auto& plan) { forward(r, plan); }, other_contents);
}

TEST_F(DisagreeingCalls, Results) {
  Call with = usual_.call;
  with.max = true;
  expect_calls(
      [&](int r, const auto& plan) {
        (void)td::forward(usual_.attention, plan, usual_.mine(r), with);
      },
      [&](int r, const auto& plan) { forward(r, plan); }, other_contents);
}

TEST_F(DisagreeingCalls, Dropout) {
  Call with = usual_.call;
  with.dropout = {.probability = 0.5, .seed = 1};
  expect_calls(
      [&](int r, const auto& plan) {
        (void)td::forward(usual_.attention, plan, usual_.mine(r), with);
      },
      [&](int r, const auto& plan) { forward(r, plan); }, other_contents);
}

TEST_F(DisagreeingCalls, Sinks) {
  Call with = usual_.call;
  const Tensor sinks(DType::f32, {4});
  with.sinks = ConstView(sinks);
  expect_calls(
      [&](int r, const auto& plan) {
        (void)td::forward(usual_.attention, plan, usual_.mine(r), with);
      },
      [&](int r, const auto& plan) { forward(r, plan); }, other_contents);
}

TEST_F(DisagreeingCalls, ShapesOfOneRank) {
  expect_calls(
      [&](int r, const auto& plan) {
        Inputs mine = usual_.mine(r);
        mine.k = test::rows_of(usual_.k, 0, 100);
        (void)td::forward(usual_.attention, plan, mine, usual_.call);
      },
      [&](int r, const auto& plan) { forward(r, plan); },
      "forward: rank 1: k has shape [1, 2, 100, 16]; it must be [1, 2, 234, 16]");
  expect_calls(
      [&](int r, const auto& plan) {
        Tensor out(DType::f32, {1, 4, 7, 16});
        td::forward_into(usual_.attention, plan, {out, std::nullopt, std::nullopt}, usual_.mine(r),
                         usual_.call);
      },
      [&](int r, const auto& plan) { forward(r, plan); },
      "forward: rank 1: out has shape [1, 4, 7, 16]; it must be [1, 4, 234, 16]");
}

TEST_F(DisagreeingCalls, AnotherMask) {
  for (const bool all : {true, false}) {
    const auto other = [&](int r, const td::Plan& plan) { forward_by(of_mask("q > kv"), r, plan); };
    expect_calls(
        other,
        [&](int r, const td::Plan& plan) {
          if (all) return other(r, plan);
          forward(r, plan);
        },
        fmt::format("forward: rank {}: the plan is of another mask than the attention's; a plan "
                    "serves all attentions with its mask",
                    all ? 0 : 1));
  }
}

TEST_F(DisagreeingCalls, ForwardAndBackward) {
  const Tensor lse(DType::f32, {1, 4, 234});
  expect_calls(
      [&](int r, const auto& plan) { forward(r, plan); },
      [&](int r, const auto& plan) {
        const Forward y = usual_.attention.forward({usual_.q, usual_.k, usual_.v}, usual_.call);
        (void)td::backward(usual_.attention, plan, usual_.mine(r),
                           {usual_.rows(y.out, r), usual_.rows(y.lse, r)},
                           usual_.rows(usual_.dout, r), std::nullopt, usual_.call);
      },
      "backward: rank 1 makes forward as call 1 of its plan, while rank 0 makes backward as call 1 "
      "of its plan; all ranks make the same calls in the same order");
}

// A rank that leaves a call out is found at the next one; one that fails, too.
TEST_F(DisagreeingCalls, SkippedCalls) {
  expect_all_throw(
      [&](int r, const auto& exchange) {
        const td::Plan plan = usual_.plan(exchange), other = usual_.plan(exchange);
        if (r != 1) {
          const Forward y = usual_.forward(r, plan);
          (void)usual_.backward(r, plan, y);
          return;
        }
        (void)usual_.forward(r, plan);
        (void)usual_.forward(r, other);
      },
      "backward: rank 1 makes forward as call 1 of its plan, of another plan, while rank 0 makes "
      "backward as call 2 of its plan; all ranks make the same calls in the same order");
}

TEST_F(DisagreeingCalls, PlanAndForward) {
  for (const bool fails : {false, true}) {
    SCOPED_TRACE(fails);
    Call with = usual_.call;
    if (fails) with.q_offsets = {5};
    const std::vector<std::string> texts = texts_of_ranks(
        in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
          const td::Plan plan = usual_.plan(exchange);
          if (r == 1) {
            (void)td::forward(usual_.attention, plan, usual_.mine(r), with);
          } else {
            (void)usual_.plan(exchange);
          }
        });
    EXPECT_THAT(texts,
                Each("plan: rank 1 makes forward as call 1 of its plan, while rank 0 makes a plan; "
                     "all ranks "
                     "make the same calls in the same order; in Python a plan is made by the first "
                     "call with "
                     "a mask, with shapes and types of q, k and v, or with what the mask reads"));
  }
}

// A rank that refuses a call that others make ends it for all, and the next is fine.
TEST_F(DisagreeingCalls, OneRefuses) {
  const std::string why = "this rank cannot";
  for (const bool planned : {false, true}) {
    SCOPED_TRACE(planned);
    on_ranks(in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
      std::optional<td::Plan> plan;
      if (planned) plan = usual_.plan(exchange);
      std::string said;
      try {
        if (r == 1) td::refuse(exchange, why);
        if (planned) (void)usual_.forward(r, *plan);
        if (!planned) (void)usual_.plan(exchange);
      } catch (const Error& error) {
        said = error.what();
      }
      EXPECT_EQ(said, "call: rank 1: this rank cannot");
      if (!planned) plan = usual_.plan(exchange);
      (void)usual_.forward(r, *plan);
    });
  }
}

TEST_F(DisagreeingCalls, RanksAgree) {
  on_ranks(in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
    const auto mine = static_cast<std::uint64_t>(r);
    EXPECT_THAT(td::agree(exchange, 7 * mine), testing::ElementsAre(0, 7, 14));
    std::array<std::byte, 6> all{};
    const std::array<std::byte, 2> own{std::byte(r), std::byte(5)};
    td::gather(exchange, own, all);
    EXPECT_THAT(all, testing::ElementsAre(std::byte(0), std::byte(5), std::byte(1), std::byte(5),
                                          std::byte(2), std::byte(5)));
  });
}

// Ranks of an exchange that is not the plan's make other calls than those of their plan.
TEST_F(DisagreeingCalls, OfAnotherPlan) {
  expect_all_throw(
      [&](int r, const auto& exchange) {
        const td::Plan one = usual_.plan(exchange), two = usual_.plan(exchange);
        (void)usual_.forward(r, r == 2 ? one : two);
      },
      "forward: rank 2 makes forward as call 1 of its plan, of another plan, while rank 0 makes "
      "forward as call 1 of its plan; all ranks make the same calls in the same order");
}

// Captures of which every rank has its own rows.
class ShardedCaptures : public testing::Test {
 protected:
  static Options options() {
    Options options = of_mask("q >= kv");
    options.score_mod =
        parse("score + table[h, q]",
              {Capture("table", std::make_shared<Tensor>(DType::f32, Dims{4, 700}))});
    options.gradients = {"table"};
    return options;
  }
  ShardedCaptures() : call_(options()) {
    call_.plan_options.sharded = {
        {.name = "table", .like = td::ShardedCapture::Like::queries, .axis = 1}};
    call_.find_whole();
  }
  [[nodiscard]] Call with(const Tensor& table) const {
    Call call = call_.call;
    call.captures = {Capture("table", ConstView(table))};
    return call;
  }
  [[nodiscard]] Tensor own(int r) const { return Tensor(DType::f32, {4, call_.queries.count(r)}); }

  SpreadCall call_;
};

TEST_F(ShardedCaptures, OfOtherShapes) {
  std::vector<std::string> rows(3), shapes(3), types(3);
  test::on_ranks(in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
    SpreadCall mine(options());
    mine.plan_options = call_.plan_options;
    const Tensor right = own(r);
    mine.call = with(right);
    const td::Plan plan = mine.plan(exchange);
    const auto thrown_with = [&](const Tensor& odd) -> std::string {
      try {
        (void)td::forward(mine.attention, plan, mine.mine(r), r == 1 ? with(odd) : mine.call);
      } catch (const Error& error) {
        return error.what();
      }
      return "nothing";
    };
    const auto at = static_cast<std::size_t>(r);
    rows[at] = thrown_with(Tensor(DType::f32, {4, 7}));
    shapes[at] = thrown_with(Tensor(DType::f32, {5, call_.queries.count(r)}));
    types[at] = thrown_with(Tensor(DType::f64, {4, call_.queries.count(r)}));
    const Forward y = mine.forward(r, plan);
    EXPECT_EQ(call_.difference(r, y), "");
    const Backward g = mine.backward(r, plan, y);
    EXPECT_EQ(g.of("table").shape(), right.shape());
    EXPECT_EQ(SpreadCall::difference("dk", g.dk, call_.gradients.dk, call_.keys.begin(r),
                                     call_.keys.end(r)),
              "");
  });
  EXPECT_THAT(rows, Each("forward: rank 1: table is [4, 7]; it is sharded along axis 1, of which "
                         "this rank has 234"));
  EXPECT_THAT(shapes, Each(other_contents));
  EXPECT_THAT(types, Each(types.front()));
  EXPECT_THAT(types.front(), testing::StartsWith("forward: rank 1: "));
}

TEST_F(ShardedCaptures, WithoutWhatForwardLeft) {
  Options again = options();
  again.save = Save::nothing;
  const Attention attention = compile(again);
  test::on_ranks(in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
    SpreadCall mine(again);
    mine.plan_options = call_.plan_options;
    const Tensor table = own(r);
    mine.call = with(table);
    const td::Plan plan = mine.plan(exchange);
    for (int i = 0; i < 2; ++i) {
      const Backward g = td::backward(attention, plan, mine.mine(r), {}, mine.rows(mine.dout, r),
                                      std::nullopt, with(table));
      EXPECT_EQ(SpreadCall::difference("dk", g.dk, call_.gradients.dk, call_.keys.begin(r),
                                       call_.keys.end(r)),
                "");
    }
  });
}

// What all ranks do wrong alike.
class Refused : public Disagreeing {
 protected:
  void expect(const SpreadCall& call, const std::string& text) {
    expect_all_throw([&](int, const auto& exchange) { (void)call.plan(exchange); }, text);
  }
  SpreadCall with_keys(std::vector<std::int64_t> starts) {
    SpreadCall call(of_mask("q >= kv"));
    call.keys.starts = std::move(starts);
    return call;
  }
};

TEST_F(Refused, Shards) {
  expect(with_keys({0, 100, 700}),
         "plan: rank 0: keys are on 2 ranks, the exchange has 3; there must be a shard for each");
  expect(with_keys({0, 100, 200, 600, 700}),
         "plan: rank 0: keys are on 4 ranks, the exchange has 3; there must be a shard for each");
  expect(with_keys({}),
         "plan: rank 0: keys are on 0 ranks, the exchange has 3; there must be a shard for each");
  expect(with_keys({5, 100, 200, 700}),
         "plan: rank 0: keys begin at 5; the first shard must begin at 0");
  expect(with_keys({0, 400, 200, 700}),
         "plan: rank 0: keys of rank 1 are those from 400 to 200; starts of shards must ascend, so "
         "that none overlap");
  expect(with_keys({0, 100, 200, 600}),
         "plan: rank 0: keys of all ranks end at 600, but there are 700; shards must have all of "
         "them");
}

TEST_F(Refused, OptionsOfPlans) {
  const auto expect_options = [&](const td::PlanOptions& options, const std::string& text) {
    SpreadCall call(of_mask("q >= kv"));
    call.plan_options = options;
    expect(call, "plan: rank 0: " + text);
  };
  expect_options({.gigabits = 0}, "the network has 0 Gbit/s; it must have more than 0");
  expect_options({.teraflops = -1}, "-1 TFLOP/s; there must be 0 (the default) or more");
  expect_options({.excess = -0.5}, "an excess of -0.5; it must be 0 or more");
  expect_options({.head_groups = -1}, "-1 head groups; there must be 0 (the best) or more");
  expect_options({.head_groups = 2},
                 "2 head groups of 2 key heads on 3 ranks; they must divide both");
  expect_options({.patience = std::chrono::milliseconds(-5)},
                 "a patience of -5 ms; it must be more than 0");
  // Longer than clocks count.
  SpreadCall call(of_mask("q >= kv"));
  call.plan_options.patience = std::chrono::milliseconds::max();
  test::on_ranks(in_process_exchanges(3),
                 [&](int, const auto& exchange) { (void)call.plan(exchange); });
  constexpr double infinite = std::numeric_limits<double>::infinity();
  expect_options({.gigabits = infinite}, "the network has inf Gbit/s; it must be finite");
  expect_options({.teraflops = infinite}, "inf TFLOP/s; there must be finitely many");
  expect_options({.excess = infinite}, "an excess of inf; it must be finite");
}

TEST_F(Refused, TheReference) {
  Options options = of_mask("q >= kv");
  options.backend = Backend::reference;
  expect(SpreadCall(options), "plan: rank 0: Backend::reference runs on one machine only");
}

TEST_F(Refused, LayoutsAndOffsets) {
  SpreadCall call(of_mask("q >= kv"));
  call.call.layout = call.attention.layout({call.q, call.k, call.v});
  expect(call, "plan: rank 0: a layout is given; plans make their own");
  const Call of_layout = call.call;
  call.call.layout = {};
  Call of_offsets = call.call;
  of_offsets.q_offsets = {3};
  const auto expect_forward = [&](const Call& with, const std::string& text) {
    expect_all_throw(
        [&](int r, const auto& exchange) {
          (void)td::forward(call.attention, call.plan(exchange), call.mine(r), with);
        },
        text);
  };
  expect_forward(of_layout,
                 "forward: rank 0: a layout is given; a distributed call has that of its plan");
  expect_forward(of_offsets,
                 "forward: rank 0: the call has an offset of 3; shards count rows, not positions");
  call.call = of_offsets;
  expect(call, "plan: rank 0: the call has an offset of 3; shards count rows, not positions");
}

TEST_F(Refused, NoExchange) { EXPECT_ERROR(usual_.plan(nullptr), "plan: there is no exchange"); }

TEST_F(Refused, EightBitsInBackward) {
  SpreadCall call(of_mask("q >= kv"));
  call.k = Tensor(DType::i8, {1, 2, 700, 16});
  expect_all_throw(
      [&](int r, const auto& exchange) {
        const td::Plan plan = call.plan(exchange);
        (void)call.backward(r, plan, call.forward(r, plan));
      },
      "backward: rank 0: k holds i8; gradients need f64, f32, bf16 or f16");
}

TEST_F(Refused, NoLse) {
  expect_all_throw(
      [&](int r, const auto& exchange) {
        const td::Plan plan = usual_.plan(exchange);
        const Forward y =
            td::forward(usual_.attention, plan, usual_.mine(r), {.executor = serial_executor()});
        (void)usual_.backward(r, plan, y);
      },
      "backward: rank 0: saved.lse is empty; forward returns it when Call::lse is set");
}

}  // namespace
}  // namespace treadle
