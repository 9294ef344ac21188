#include "function.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <map>
#include <mutex>

#include "base/copy.h"
#include "base/error.h"
#include "ir/interpret.h"
#include "ir/parse.h"
#include "layout/block_kinds.h"
#include "layout/build.h"
#include "passes/simplify.h"
#include "treadle/mod.h"

namespace treadle::python {
namespace {

std::atomic<bool> serial{false};

Attention compile_with(const FunctionOptions& given, const std::vector<std::string>& gradients) {
  // Stands in for what each call binds: only element type and rank matter.
  static const std::int64_t zero = 0;
  std::vector<Capture> captures;
  for (const Declared& declared : given.captures) {
    const Dims none(static_cast<std::size_t>(declared.rank), 0);
    captures.emplace_back(declared.name, ConstView(&zero, declared.dtype, none));
  }
  Options options{.scale = given.scale, .gradients = gradients};
  if (!given.score_mod.empty()) options.score_mod = parse(given.score_mod, captures);
  if (!given.mask.empty()) options.mask = parse(given.mask, captures);
  return compile(options);
}

layout::Mask bind(const std::string& text, const std::vector<Declared>& declared,
                  const Captures& captures) {
  std::vector<ir::Slot> slots;
  for (const Declared& one : declared) slots.push_back({one.name, one.dtype, one.rank});
  layout::Mask bound{passes::simplify(ir::parse(text, slots)), {}};
  for (const ir::Slot& slot : bound.graph.slots()) {
    const auto at = std::ranges::find(declared, slot.name, &Declared::name);
    bound.memory.push_back(captures.views[static_cast<std::size_t>(at - declared.begin())]);
  }
  return bound;
}

}  // namespace

std::shared_ptr<Executor> executor_for(int threads) {
  static std::mutex mutex;
  static auto* known = new std::map<int, std::shared_ptr<Executor>>;
  if (serial || threads == 1) return serial_executor();
  const std::lock_guard lock(mutex);
  std::shared_ptr<Executor>& executor = (*known)[threads];
  if (!executor) executor = tbb_executor(threads);
  return executor;
}

void stay_serial() { serial = true; }

Function::Function(const FunctionOptions& options) : options_(options) {
  // Mistakes in the texts are told here.
  for (const CaptureInfo& capture : compile_with(options, {}).captures())
    read_.push_back(capture.name);
  std::ranges::copy_if(options.gradients, std::back_inserter(learned_),
                       [&](const std::string& name) { return reads(name); });
  compiled_ = compile_with(options, learned_);
}

bool Function::reads(const std::string& name) const {
  return std::ranges::find(read_, name) != read_.end();
}

Call Function::call_of(const Tensors& tensors, const Layout& layout, int threads) const {
  Call call{.captures = {}, .executor = executor_for(threads), .layout = layout};
  for (std::size_t i = 0; i < options_.captures.size(); ++i) {
    const std::string& name = options_.captures[i].name;
    if (reads(name)) call.captures.emplace_back(name, tensors.captures.views[i]);
  }
  return call;
}

Layout Function::layout(const Tensors& tensors, int threads) const {
  return compiled_->layout(tensors.inputs, call_of(tensors, {}, threads));
}

void Function::forward(const Tensors& tensors, const Layout& layout, const ForwardViews& results,
                       int threads) const {
  compiled_->forward_into(results, tensors.inputs, call_of(tensors, layout, threads));
}

void Function::backward(const Tensors& tensors, const Layout& layout, const Saved& saved,
                        const ConstView& dout, const std::optional<ConstView>& dlse,
                        const std::vector<View>& results, int threads) const {
  BackwardViews views{results[0], results[1], results[2], {}};
  for (std::size_t i = 0; i < options_.gradients.size(); ++i) {
    const View& gradient = results[3 + i];
    if (reads(options_.gradients[i])) {
      views.captures.push_back({options_.gradients[i], gradient});
    } else {
      base::copy(gradient, Tensor(gradient.dtype(), gradient.shape()));
    }
  }
  compiled_->backward_into(views, tensors.inputs, saved, dout, dlse,
                           call_of(tensors, layout, threads));
}

void show_pairs(const std::string& text, bool is_score_mod, const std::vector<Declared>& declared,
                const Captures& captures, const View& result) {
  const layout::Mask mask = bind(text, declared, captures);
  ir::Interpreter<double> run(mask.graph, mask.memory);
  const std::int64_t keys = result.size(3);
  std::vector<std::int64_t> kv(static_cast<std::size_t>(keys));
  for (std::int64_t i = 0; i < keys; ++i) kv[static_cast<std::size_t>(i)] = i;
  const double zero = 0;
  for (std::int64_t b = 0; b < result.size(0); ++b) {
    for (std::int64_t h = 0; h < result.size(1); ++h) {
      for (std::int64_t q = 0; q < result.size(2); ++q) {
        run({.score = {&zero, 1}, .b = {&b, 1}, .h = {&h, 1}, .q = {&q, 1}, .kv = kv}, keys);
        const auto poison = run.poison(0);
        for (std::int64_t k = 0; k < keys; ++k) {
          const auto i = static_cast<std::size_t>(k);
          if (!poison.empty() && poison[i] != 0) {
            base::fail_mod("mask: {}, at (b {}, h {}, q {}, kv {})", run.poison_reason(0, k), b, h,
                           q, k);
          }
          const bool shown = is_score_mod ? run.reals(0)[i] != -INFINITY : run.booleans(0)[i] != 0;
          result.at<bool>({b, h, q, k}) = shown;
        }
      }
    }
  }
}

void show_blocks(const std::string& mask, const std::vector<Declared>& declared,
                 const Captures& captures, std::int64_t queries, std::int64_t keys,
                 std::int64_t query_block, std::int64_t key_block, const View& result,
                 int threads) {
  const layout::Extent extent{result.size(0), result.size(1), queries, keys};
  const layout::Layout layout =
      layout::build(bind(mask, declared, captures), extent, layout::Tiles({}, queries, query_block),
                    *executor_for(threads));
  auto* to = static_cast<std::uint8_t*>(result.data());
  for (std::int64_t b = 0; b < extent.batch; ++b) {
    for (std::int64_t h = 0; h < extent.heads; ++h) {
      for (const layout::BlockKind kind :
           layout::block_kinds(layout, b, h, key_block, layout::Tails::hidden))
        *to++ = static_cast<std::uint8_t>(kind);
    }
  }
}

}  // namespace treadle::python
