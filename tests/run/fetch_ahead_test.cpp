// What a task's successor touches is what kernels are told to fetch.
#include "run/fetch_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "run/key_source.h"
#include "treadle/tensor.h"

namespace treadle::run {
namespace {

using Addresses = std::set<const std::byte*>;

// Keys and values of strided tiles: q >= kv and (q - kv) % 4 == 0, two tiles of 8 for each of 4 classes.
struct Strided {
  Tensor q{DType::f32, {1, 2, 64, 64}}, k{DType::f32, {1, 1, 64, 64}},
      v{DType::f32, {1, 1, 64, 64}};
  Tensor out{DType::f32, {1, 2, 64, 64}};
  ConstView key_view = k, value_view = v;
  TensorKeys keys{key_view, value_view};
  layout::Layout layout;
  ForwardKernels kernels;
  ForwardProblem problem{.q = q,
                         .keys = keys,
                         .out = out.view(),
                         .lse = {},
                         .max = {},
                         .score_captures = {},
                         .sinks = {}};
  PassOrder order;

  Strided() {
    const layout::Tiles tiles({.kind = layout::Order::Kind::residue, .modulus = 4}, 64, 8);
    std::vector<std::vector<layout::Run>> runs;
    for (std::int64_t tile = 0; tile < tiles.count(); ++tile) {
      const std::int64_t last = tiles.query(tile, tiles.size(tile) - 1);
      runs.push_back({layout::Run::stepped(
          {.begin = last % 4, .width = 1, .step = 4, .count = last / 4 + 1}, false)});
    }
    layout = layout::Layout({1, 2, 64, 64}, tiles, false, false, runs);
    for (std::size_t i = 0; i < kernels.tiles.size(); ++i) {
      kernels.tiles[i].plan = plan::plan_tile(plan::find_target("haswell"), DType::f32, 64, 64,
                                              static_cast<int>(i) + 1);
    }
  }

  // Of all tasks: what each is told to fetch.
  template <class F>
  void for_each_task(F&& f) {
    ForwardPass pass{.terms = {{kernels, layout, {}}}, .schedule = {}};
    pass.schedule = plan::schedule(
        layout,
        {.key_heads = 1, .most_queries = 24, .tiles_per_group = 3, .threads = 1, .weights = {}});
    const auto serial = serial_executor();
    const ForwardShared shared(problem, pass, 0, 0, order, {1, 2, 3}, base::Workers(*serial));
    std::vector<std::byte> memory(
        static_cast<std::size_t>(measured([](Carver& carver) { FetchAhead::carve(carver); })));
    for (const plan::Task& task : pass.schedule.tasks) {
      Carver carver(memory.data());
      FetchAhead ahead = FetchAhead::carve(carver);
      ahead.look_at(shared, &task);
      f(task, ahead);
    }
  }
};

const std::byte* row(const ConstView& view, std::int64_t h, std::int64_t at) {
  return static_cast<const std::byte*>(view.data()) + (h * view.stride(1) + at * 64) * 4;
}

TEST(FetchAheads, NameEveryRowOfATask) {
  Strided strided;
  strided.for_each_task([&](const plan::Task& task, FetchAhead& ahead) {
    const Addresses found(ahead.pieces().begin(), ahead.pieces().end());
    Addresses wanted;
    for (std::int64_t e = task.first; e < task.first + task.count; ++e) {
      const plan::Entry entry = plan::entry_of(strided.layout, 1, 24, 0, e);
      for (std::int64_t i = 0; i < entry.queries; ++i) {
        const std::int64_t query = strided.layout.tiles().query(entry.tile, i);
        wanted.insert(row(strided.q, entry.head, query));
        wanted.insert(row(strided.out, entry.head, query));
      }
      layout::for_each_piece(strided.layout.runs(0, entry.head, entry.tile),
                             [&](layout::Range keys, bool) {
                               wanted.insert(row(strided.k, 0, keys.begin));
                               wanted.insert(row(strided.v, 0, keys.begin));
                             });
    }
    EXPECT_EQ(found, wanted) << "task of entry " << task.first;
    EXPECT_EQ(found.size(), ahead.pieces().size()) << "a row is named twice";
    // One more address, for when none is left.
    EXPECT_EQ(ahead.list()->next, ahead.pieces().data());
    EXPECT_EQ(ahead.list()->end - ahead.list()->next, std::ssize(ahead.pieces()));
    EXPECT_NE(*ahead.list()->end, nullptr);
  });
}

// Queries, keys and values, and gradients of all three.
TEST(FetchAheads, NameEveryRowOfATaskOfABackwardPass) {
  Strided strided;
  Tensor dout(DType::f32, {1, 2, 64, 64}), dq(DType::f32, {1, 2, 64, 64});
  Tensor dk(DType::f32, {1, 1, 64, 64}), dv(DType::f32, {1, 1, 64, 64});
  Tensor lse(DType::f32, {1, 2, 64});
  const BackwardProblem problem{.q = strided.q,
                                .out = strided.out,
                                .dout = dout,
                                .keys = strided.keys,
                                .lse = lse,
                                .dlse = {},
                                .dq = dq,
                                .dk = dk,
                                .dv = dv,
                                .score_captures = {},
                                .derivative_captures = {},
                                .captured = {},
                                .gradient_strides = {}};
  const BackwardKernels kernels;
  const BackwardPass pass{
      kernels, strided.layout, {}, plan::schedule_backward(strided.layout, {1, 1}, {})};
  ASSERT_TRUE(pass.schedule.completes_dq);
  const auto serial = serial_executor();
  const BackwardShared<float> shared(pass, 0, problem, Nonfinite::fast, {}, {},
                                     base::Workers(*serial));
  std::vector<std::byte> memory(
      static_cast<std::size_t>(measured([](Carver& carver) { FetchAhead::carve(carver); })));
  for (const auto& group : pass.schedule.groups) {
    for (const plan::BackwardTask& task : group) {
      Carver carver(memory.data());
      FetchAhead ahead = FetchAhead::carve(carver);
      ahead.look_at(shared, &task);
      const Addresses found(ahead.pieces().begin(), ahead.pieces().end());
      Addresses wanted;
      for (std::int64_t at = task.own.begin(); at < 64; at += 4) {
        for (const Tensor* tensor : {&strided.k, &strided.v, &dk, &dv})
          wanted.insert(row(*tensor, 0, at));
        for (const Tensor* tensor : {&strided.q, &dout, &dq})
          for (const std::int64_t h : {0, 1}) wanted.insert(row(*tensor, h, at));
      }
      EXPECT_EQ(found, wanted) << "residue " << task.own.begin();
      EXPECT_EQ(found.size(), ahead.pieces().size()) << "a row is named twice";
    }
  }
}

TEST(FetchAheads, AreEmptyAfterTheLastTask) {
  Strided strided;
  strided.for_each_task([&](const plan::Task&, FetchAhead& ahead) {
    ForwardPass pass{.terms = {{strided.kernels, strided.layout, {}}}, .schedule = {}};
    const auto serial = serial_executor();
    const ForwardShared shared(strided.problem, pass, 0, 0, strided.order, {1, 2, 3},
                               base::Workers(*serial));
    ahead.look_at(shared, nullptr);
    EXPECT_TRUE(ahead.pieces().empty());
    EXPECT_EQ(ahead.list()->next, ahead.list()->end);
  });
}

}  // namespace
}  // namespace treadle::run
