// A forward call with everything in the test's hands: graphs, memory, layout, executor.
//
//   ForwardRun run(mods_of(mods::alibi(slopes), mods::causal()));
//   layout::Layout layout = run.build(extent, {}, 24);
//   Rows got = run(inputs, 0.25, layout, *tbb_executor(3));
//   Rows expected = run.reference(inputs, 0.25, DType::f64);
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backend/held_layout.h"
#include "base/copy.h"
#include "ir/print.h"
#include "layout/build.h"
#include "passes/scalars.h"
#include "passes/simplify.h"
#include "plain_attention.h"
#include "plan/target.h"
#include "reference/attention.h"
#include "traced.h"
#include "treadle/treadle.h"

namespace treadle::test {

// Two graphs, simplified, and what they read, by name.
struct Mods {
  ir::Graph score_mod, mask;
  std::vector<Capture> captures;
  std::vector<std::shared_ptr<const Tensor>> memory;  // of captures that do not keep theirs
};

inline Mods mods_of(const ScoreMod& score_mod, const MaskMod& mask) {
  const auto table = std::make_shared<trace::CaptureTable>();
  Mods mods;
  mods.score_mod = passes::simplify(trace::trace(score_mod, table));
  mods.mask = passes::simplify(trace::trace(mask, table));
  mods.captures = table->captures();
  return mods;
}

struct Rows {
  Tensor out, lse, max;
};

// Bit by bit, but a NaN is a NaN, whatever its payload.
inline bool same_numbers(const Tensor& x, const Tensor& y) {
  if (same_bits(x, y)) return true;
  if (x.dtype() != y.dtype() || x.shape() != y.shape()) return false;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const double u = base::load_double(x.view().data(), x.dtype(), i);
    const double v = base::load_double(y.view().data(), y.dtype(), i);
    const bool same_sign = std::signbit(u) == std::signbit(v);
    if (std::isnan(u) ? !std::isnan(v) : u != v || !same_sign) return false;
  }
  return true;
}

inline bool same_rows(const Rows& a, const Rows& b) {
  return same_numbers(a.out, b.out) && same_numbers(a.lse, b.lse) && same_numbers(a.max, b.max);
}

inline layout::Extent extent_of(const Inputs& inputs) {
  return {inputs.q.size(0), inputs.q.size(1), inputs.q.size(2), inputs.k.size(2)};
}

inline DType compute_of(const Inputs& inputs) {
  return reference::compute_type(inputs.q.dtype(), inputs.k.dtype(), inputs.v.dtype());
}

class ForwardRun {
 public:
  explicit ForwardRun(Mods mods, const std::string& target = "") : mods_(std::move(mods)) {
    options_.score_mod = parse(ir::to_text(mods_.score_mod), named(mods_.score_mod));
    options_.mask = parse(ir::to_text(mods_.mask), named(mods_.mask));
    options_.target = target;
  }

  [[nodiscard]] plan::Target target() const {
    return options_.target.empty() ? plan::host_target() : plan::find_target(options_.target);
  }

  [[nodiscard]] layout::Layout build(const layout::Extent& extent, const layout::Order& order,
                                     std::int64_t height) const {
    std::vector<ConstView> memory;
    for (const Capture& capture : named(mods_.mask)) memory.push_back(capture.view());
    return layout::build({mods_.mask, memory}, extent, layout::Tiles(order, extent.queries, height),
                         *serial_executor());
  }

  // A pass for each term of the mask, all in this order.
  [[nodiscard]] Layout passes(const layout::Extent& extent, const layout::Order& order,
                              std::int64_t height) const {
    std::vector<ConstView> memory;
    for (const Capture& capture : named(mods_.mask)) memory.push_back(capture.view());
    auto held = std::make_shared<Layout::Held>();
    held->mask = mods_.mask.hash();
    const layout::Tiles tiles(order, extent.queries, height);
    for (const auto& term : backend::terms_of(mods_.mask, memory)) {
      const layout::Mask mask{term->checked,
                              passes::memory_of(term->checked, mods_.mask.slots(), memory)};
      held->terms.push_back({layout::build(mask, extent, tiles, *serial_executor()), term});
    }
    if (held->terms.empty()) held->terms.push_back({build(extent, order, height)});
    return Layout(held);
  }

  void into(const ForwardViews& results, const Inputs& inputs, double scale,
            const layout::Layout& layout, Executor& executor) const {
    auto held = std::make_shared<Layout::Held>();
    held->terms.push_back({layout});
    held->mask = mods_.mask.hash();
    compiled(scale).forward_into(results, inputs,
                                 {.executor = borrowed(executor), .layout = Layout(held)});
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
  // With the layout that a call chooses, or another one.
  Rows operator()(const Inputs& inputs, double scale, const Layout& layout = {},
                  const std::shared_ptr<Executor>& executor = serial_executor()) const {
    return rows_of(compiled(scale).forward(
        inputs, {.executor = executor, .layout = layout, .lse = true, .max = true}));
  }

  // By the definition, after conversion of the inputs to this type.
  [[nodiscard]] Rows reference(const Inputs& inputs, double scale, DType as) const {
    const Tensor q = base::convert(inputs.q, as);
    const Tensor k = base::convert(inputs.k, as);
    const Tensor v = base::convert(inputs.v, as);
    return reference({q, k, v}, scale);
  }
  [[nodiscard]] Rows reference(const Inputs& inputs, double scale) const {
    Options options = options_;
    options.scale = scale;
    options.backend = Backend::reference;
    return rows_of(
        attention(inputs, options, {.executor = serial_executor(), .lse = true, .max = true}));
  }

 private:
  // Those that a graph reads, in the order of its slots.
  [[nodiscard]] std::vector<Capture> named(const ir::Graph& graph) const {
    std::vector<Capture> captures;
    for (const ir::Slot& slot : graph.slots())
      captures.push_back(*std::ranges::find(mods_.captures, slot.name, &Capture::name));
    return captures;
  }
  [[nodiscard]] const Attention& compiled(double scale) const {
    const auto known = compiled_.find(scale);
    if (known != compiled_.end()) return known->second;
    Options options = options_;
    options.scale = scale;
    return compiled_.emplace(scale, compile(options)).first->second;
  }
  static Rows rows_of(Forward y) { return {std::move(y.out), std::move(y.lse), std::move(y.max)}; }
  static std::shared_ptr<Executor> borrowed(Executor& executor) {
    return {std::shared_ptr<Executor>(), &executor};
  }

  Mods mods_;
  Options options_;
  mutable std::map<double, Attention> compiled_;  // by scale
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
        layout::for_each_piece(given.runs(b, h, t), [&](layout::Range piece, bool full) {
          hidden(piece.begin);
          while (done < piece.end) {
            const std::uint64_t left = static_cast<std::uint64_t>(piece.end - done);
            const auto length =
                static_cast<std::int64_t>(random() % 3 == 0 ? left : random() % left + 1);
            runs.emplace_back(done, done + length, full && random() % 3 != 0);
            done += length;
          }
        });
        hidden(extent.keys.count());
        lists.push_back(std::move(runs));
      }
    }
  }
  return {extent, given.tiles(), given.per_batch(), given.per_head(), lists};
}

}  // namespace treadle::test
