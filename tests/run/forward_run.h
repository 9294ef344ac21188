// A forward call with everything in the test's hands: graphs, memory, layout, executor.
//
//   ForwardRun run(mods_of(mods::alibi(slopes), mods::causal()));
//   layout::Layout layout = run.build(extent, {}, 24);
//   Rows got = run(inputs, 0.25, layout, *tbb_executor(3));
//   Rows expected = run.reference(inputs, 0.25, DType::f64);
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "api/cpu.h"
#include "api/held_layout.h"
#include "base/copy.h"
#include "layout/build.h"
#include "passes/simplify.h"
#include "plain_attention.h"
#include "reference/attention.h"
#include "traced.h"
#include "treadle/treadle.h"

namespace treadle::test {

// Two graphs, simplified, and the memory of their slots.
struct Mods {
  ir::Graph score_mod, mask;
  std::vector<ConstView> score_memory, mask_memory;
  std::vector<Capture> keep;  // what they read
};

inline std::vector<ConstView> memory_of(const ir::Graph& graph,
                                        const std::vector<Capture>& captures) {
  std::vector<ConstView> memory;
  for (const ir::Slot& slot : graph.slots())
    memory.push_back(std::ranges::find(captures, slot.name, &Capture::name)->view());
  return memory;
}

inline Mods mods_of(const ScoreMod& score_mod, const MaskMod& mask) {
  const auto table = std::make_shared<trace::CaptureTable>();
  Mods mods;
  mods.score_mod = passes::simplify(trace::trace(score_mod, table));
  mods.mask = passes::simplify(trace::trace(mask, table));
  mods.keep = table->captures();
  mods.score_memory = memory_of(mods.score_mod, mods.keep);
  mods.mask_memory = memory_of(mods.mask, mods.keep);
  return mods;
}

struct Rows {
  Tensor out, lse, max;
};

// NaN included, whatever its payload: a NaN is a NaN.
inline bool same_rows(const Rows& a, const Rows& b) {
  const auto same = [](const Tensor& x, const Tensor& y) {
    if (same_bits(x, y)) return true;
    if (x.dtype() != y.dtype() || x.shape() != y.shape()) return false;
    for (std::int64_t i = 0; i < x.count(); ++i) {
      const double u = base::load_double(x.view().data(), x.dtype(), i);
      const double v = base::load_double(y.view().data(), y.dtype(), i);
      const bool same_sign = std::signbit(u) == std::signbit(v);
      if (std::isnan(u) ? !std::isnan(v) : u != v || !same_sign) return false;
    }
    return true;
  };
  return same(a.out, b.out) && same(a.lse, b.lse) && same(a.max, b.max);
}

inline layout::Extent extent_of(const Inputs& inputs) {
  return {inputs.q.size(0), inputs.q.size(1), inputs.q.size(2), inputs.k.size(2)};
}

inline DType compute_of(const Inputs& inputs) {
  return reference::compute_type(inputs.q.dtype(), inputs.k.dtype(), inputs.v.dtype());
}

class ForwardRun {
 public:
  explicit ForwardRun(Mods mods, const std::string& target = "")
      : mods_(std::move(mods)), cpu_(mods_.score_mod, mods_.mask, target) {
    bound_ = {.score_mod = mods_.score_memory, .score = {}, .mask = mods_.mask_memory};
    const auto slots = mods_.score_mod.slots();
    for (const ir::Slot& slot : cpu_.score().graph.slots()) {
      const auto at = std::ranges::find(slots, slot.name, &ir::Slot::name) - slots.begin();
      bound_.score.push_back(mods_.score_memory[static_cast<std::size_t>(at)]);
    }
  }

  [[nodiscard]] const Mods& mods() const { return mods_; }
  [[nodiscard]] const plan::Target& target() const { return cpu_.target(); }

  [[nodiscard]] layout::Layout build(const layout::Extent& extent, const layout::Order& order,
                                     std::int64_t height) const {
    return layout::build({mods_.mask, mods_.mask_memory}, extent,
                         layout::Tiles(order, extent.queries, height), *serial_executor());
  }

  void into(const ForwardViews& results, const Inputs& inputs, double scale,
            const layout::Layout& layout, Executor& executor) const {
    const auto held = std::make_shared<Layout::Held>(Layout::Held{layout, mods_.mask.hash()});
    cpu_.forward(inputs, scale, bound_, Layout(held), results, executor);
  }

  Rows operator()(const Inputs& inputs, double scale, const layout::Layout& layout,
                  Executor& executor) const {
    const Dims& q = inputs.q.shape();
    const DType compute = compute_of(inputs);
    Rows rows{Tensor(inputs.q.dtype(), {q[0], q[1], q[2], inputs.v.size(3)}),
              Tensor(compute, {q[0], q[1], q[2]}), Tensor(compute, {q[0], q[1], q[2]})};
    into({rows.out, rows.lse.view(), rows.max.view()}, inputs, scale, layout, executor);
    return rows;
  }
  // With the layout that a call would choose.
  Rows operator()(const Inputs& inputs, double scale) const {
    const Layout chosen =
        cpu_.make_layout(extent_of(inputs), compute_of(inputs), bound_, *serial_executor());
    return (*this)(inputs, scale, chosen.held()->layout, *serial_executor());
  }

  // By the definition, after conversion of the inputs to this type.
  [[nodiscard]] Rows reference(const Inputs& inputs, double scale, DType as) const {
    const Tensor q = base::convert(inputs.q, as);
    const Tensor k = base::convert(inputs.k, as);
    const Tensor v = base::convert(inputs.v, as);
    return reference({q, k, v}, scale);
  }
  [[nodiscard]] Rows reference(const Inputs& inputs, double scale) const {
    reference::Forward y = reference::forward({.q = inputs.q,
                                               .k = inputs.k,
                                               .v = inputs.v,
                                               .scale = scale,
                                               .score_mod = {mods_.score_mod, mods_.score_memory},
                                               .mask = {mods_.mask, mods_.mask_memory}},
                                              *serial_executor());
    return {std::move(y.out), std::move(y.lse), std::move(y.max)};
  }

 private:
  Mods mods_;
  api::Cpu cpu_;
  api::Bindings bound_;
};

// Claims some number of threads, and runs everything in this one, in an order drawn at random: what
// an executor may do at worst.
class ShuffledExecutor final : public Executor {
 public:
  ShuffledExecutor(int threads, std::uint64_t seed) : threads_(threads), random_(seed) {}

  [[nodiscard]] int threads() const override { return threads_; }
  void run(std::int64_t count, const std::function<void(std::int64_t)>& task) override {
    std::vector<std::int64_t> order(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (const std::int64_t i : order) task(i);
  }

 private:
  int threads_;
  std::mt19937_64 random_;
};

// The same visibility written down differently: runs cut anywhere, parts of full ones called
// partial, and columns that nobody sees added to partial ones.
inline layout::Layout rewritten(const layout::Layout& given, std::mt19937_64& random) {
  const layout::Extent& extent = given.extent();
  std::vector<std::vector<layout::Run>> lists;
  const std::int64_t batches = given.per_batch() ? extent.batch : 1;
  const std::int64_t heads = given.per_head() ? extent.heads : 1;
  for (std::int64_t b = 0; b < batches; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t t = 0; t < given.tiles().count(); ++t) {
        std::vector<layout::Run> runs;
        std::int64_t done = 0;
        const auto hidden = [&](std::int64_t end) {
          if (done < end && random() % 4 == 0) {
            const auto from =
                done + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end - done));
            runs.emplace_back(from, end, false);
          }
          done = end;
        };
        for (const layout::Run& run : given.runs(b, h, t)) {
          hidden(run.begin());
          while (done < run.end()) {
            const std::uint64_t left = static_cast<std::uint64_t>(run.end() - done);
            const auto length =
                static_cast<std::int64_t>(random() % 3 == 0 ? left : random() % left + 1);
            runs.emplace_back(done, done + length, run.full() && random() % 3 != 0);
            done += length;
          }
        }
        hidden(extent.keys);
        lists.push_back(std::move(runs));
      }
    }
  }
  return {extent, given.tiles(), given.per_batch(), given.per_head(), lists};
}

}  // namespace treadle::test
