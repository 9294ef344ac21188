#include "api/cpu.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>

#include "base/copy.h"
#include "base/dump.h"
#include "base/error.h"
#include "layout/choose.h"
#include "plan/mod_facts.h"
#include "run/backward.h"
#include "run/poison.h"

namespace treadle::api {
namespace {

// Kernels and working memory are the process's. They are never taken down: threads may still be
// running when statics are.
struct Process {
  jit::Engine engine{jit::EngineOptions::from_environment()};
  run::Scratch scratch;
};

Process& process() {
  static auto* process = new Process;
  return *process;
}

plan::Target target_named(const std::string& name) {
  plan::Target target = plan::host_target();
  if (name.empty() || name == target.name) return target;
  plan::Target wanted = plan::find_target(name);
  const std::vector<std::string> runnable = plan::runnable_targets();
  if (std::ranges::find(runnable, name) == runnable.end()) {
    base::fail("compile: the target is \"{}\", which this processor cannot run; it runs {}", name,
               fmt::join(runnable, ", "));
  }
  wanted.l1 = target.l1;
  wanted.l2 = target.l2;
  wanted.cores = target.cores;
  return wanted;
}

bool is_true(const ir::Graph& mask) {
  const ir::Node& node = mask[mask.output()];
  return node.op == ir::Op::constant && node.boolean();
}

DType compute_type(const Inputs& inputs) {
  const auto wide = [](const ConstView& view) { return view.dtype() == DType::f64; };
  return wide(inputs.q) || wide(inputs.k) || wide(inputs.v) ? DType::f64 : DType::f32;
}

layout::Extent extent_of(const Inputs& inputs) {
  return {inputs.q.size(0), inputs.q.size(1), inputs.q.size(2), inputs.k.size(2)};
}

std::vector<std::int64_t> words_of(const std::vector<ConstView>& memory) {
  std::vector<std::int64_t> words;
  for (const ConstView& view : memory) {
    words.push_back(reinterpret_cast<std::int64_t>(view.data()));
    words.insert(words.end(), view.shape().begin(), view.shape().end());
    words.insert(words.end(), view.strides().begin(), view.strides().end());
  }
  return words;
}

// Kernels want the elements of a row side by side; anything else is copied first.
struct Rows {
  Tensor copy;
  ConstView view;

  explicit Rows(const ConstView& given) : view(given) {
    if (given.stride(3) == 1 || given.size(3) == 1) return;
    copy = base::convert(given, given.dtype());
    view = copy;
  }
};

struct Range {
  const std::byte *begin = nullptr, *end = nullptr;
};

Range range_of(const ConstView& view) {
  std::int64_t low = 0;
  std::int64_t high = 0;
  for (int axis = 0; axis < view.rank(); ++axis) {
    if (view.size(axis) == 0) return {};
    const std::int64_t reach = (view.size(axis) - 1) * view.stride(axis);
    low += std::min<std::int64_t>(reach, 0);
    high += std::max<std::int64_t>(reach, 0);
  }
  const auto* data = static_cast<const std::byte*>(view.data());
  const auto size = static_cast<std::int64_t>(size_of(view.dtype()));
  return {data + low * size, data + (high + 1) * size};
}

bool overlaps(const ConstView& a, const ConstView& b) {
  const Range x = range_of(a);
  const Range y = range_of(b);
  return x.begin < y.end && y.begin < x.end;
}

// Results where nothing else is: their own memory first when a call may fail, when the caller's
// overlaps with what is read, or when its rows are not side by side.
class Results {
 public:
  Results(const ForwardViews& wanted, bool aside) : wanted_(wanted), now_(wanted) {
    const auto put_aside = [](View& view, Tensor& tensor) {
      tensor = Tensor(view.dtype(), view.shape());
      view = tensor;
    };
    if (aside || (wanted.out.stride(3) != 1 && wanted.out.size(3) > 1)) put_aside(now_.out, out_);
    if (aside && now_.lse) put_aside(*now_.lse, lse_);
    if (aside && now_.max) put_aside(*now_.max, max_);
  }
  [[nodiscard]] const ForwardViews& views() const { return now_; }
  void deliver() const {
    if (now_.out.data() != wanted_.out.data()) base::copy(wanted_.out, now_.out);
    if (now_.lse && now_.lse->data() != wanted_.lse->data()) base::copy(*wanted_.lse, *now_.lse);
    if (now_.max && now_.max->data() != wanted_.max->data()) base::copy(*wanted_.max, *now_.max);
  }

 private:
  const ForwardViews& wanted_;
  ForwardViews now_;
  Tensor out_, lse_, max_;
};

// Room for the gradients of captures in the type of the computation, and how their contributions
// find their places.
struct CaptureSums {
  std::vector<run::CapturedSum> captured;
  std::vector<std::int64_t> strides;
  std::vector<Tensor> tensors;

  CaptureSums(const ir::Joint& joint, const std::vector<CaptureView>& wanted, DType compute) {
    const auto is_input = [&](int output, ir::Input input) {
      const ir::Node& node = joint.graph[joint.graph.outputs()[static_cast<std::size_t>(output)]];
      return node.op == ir::Op::input && node.input == input;
    };
    std::vector<Dims> shapes;
    for (const CaptureView& view : wanted) {
      tensors.emplace_back(compute, view.gradient.shape());
      run::CapturedSum sum{.contributions = {}, .count = view.gradient.count()};
      for (std::size_t c = 0; c < joint.contributions.size(); ++c)
        if (joint.contributions[c].slot.name == view.name) sum.contributions.push_back(c);
      const auto always = [&](ir::Input input) {
        for (std::size_t axis = 0; axis < view.gradient.shape().size(); ++axis) {
          if (std::ranges::all_of(sum.contributions, [&](std::size_t c) {
                return is_input(joint.contributions[c].index[axis], input);
              }))
            return true;
        }
        return false;
      };
      sum.by_key = always(ir::Input::kv);
      sum.by_head = always(ir::Input::h);
      sum.by_batch = always(ir::Input::b);
      captured.push_back(std::move(sum));
    }
    // The tensors do not move any more.
    for (std::size_t i = 0; i < tensors.size(); ++i) captured[i].sum = tensors[i].view().data();
    for (const ir::Contribution& contribution : joint.contributions) {
      const auto at = std::ranges::find(wanted, contribution.slot.name, &CaptureView::name);
      const Dims of = contiguous_strides(at->gradient.shape());
      strides.insert(strides.end(), of.begin(), of.end());
    }
  }

  void deliver(const std::vector<CaptureView>& wanted) const {
    for (std::size_t i = 0; i < tensors.size(); ++i) base::copy(wanted[i].gradient, tensors[i]);
  }
};

}  // namespace

const std::shared_ptr<Executor>& default_executor() {
  static const auto* executor = new std::shared_ptr<Executor>(tbb_executor());
  return *executor;
}

Cpu::Cpu(const ir::Graph& score_mod, const ir::Joint& derivative, const ir::Graph& mask,
         const std::string& target)
    : score_mod_(score_mod),
      mask_(mask),
      derivative_(derivative),
      score_(plan::score_form(score_mod)),
      target_(target_named(target)),
      sees_all_(is_true(mask)) {}

std::int64_t Cpu::scratch_bytes(DType compute, std::int64_t dim, std::int64_t value_dim) const {
  const plan::ForwardPlan plan =
      plan::plan_forward(target_, compute, dim, value_dim, plan::most_vectors);
  const std::int64_t tile = plan.width() * (dim + 2 * (value_dim + 2) + 1);
  const std::int64_t block = plan.key_block * (dim + value_dim + plan.width() + 1) +
                             plan.width() * std::max(dim, value_dim);
  return (tile * plan::tiles_per_group(plan, true) + block) *
         static_cast<std::int64_t>(size_of(compute));
}

Layout Cpu::make_layout(const layout::Extent& extent, DType compute, const Bindings& bound,
                        Executor& executor) const {
  const layout::Mask mask{mask_, bound.mask};
  const layout::TileWeights weights = plan::tile_weights(target_, compute);
  const layout::Choice choice = layout::choose_order(mask, extent, weights, executor);
  auto held = std::make_shared<Layout::Held>();
  held->layout = layout::build(
      mask, extent, layout::Tiles(choice.order, extent.queries, choice.height), executor);
  held->mask = mask_.hash();
  if (base::dump_wanted(base::Dump::layout))
    base::dump(base::Dump::layout, "forward", layout::to_text(held->layout));
  return Layout(std::move(held));
}

std::shared_ptr<run::ForwardKernels> Cpu::kernels(const Inputs& inputs, const Bindings& bound,
                                                  const layout::Layout& layout) const {
  run::ForwardSpec spec{.target = target_,
                        .q = inputs.q.dtype(),
                        .k = inputs.k.dtype(),
                        .v = inputs.v.dtype(),
                        .compute = compute_type(inputs),
                        .dim = inputs.q.size(3),
                        .value_dim = inputs.v.size(3)};
  const layout::Extent extent = extent_of(inputs);
  const layout::Order& order = layout.tiles().order();
  spec.score_facts.checked = spec.mask_facts.checked = false;  // where there is nothing to read
  if (score_.kind != plan::ScoreForm::Kind::plain)
    spec.score_facts = plan::find_facts(score_.graph, bound.score, extent, order);
  if (!sees_all_) spec.mask_facts = plan::find_facts(mask_, bound.mask, extent, order);

  const auto same = [&](const std::shared_ptr<run::ForwardKernels>& kernels) {
    const run::ForwardSpec& s = kernels->spec();
    return s.q == spec.q && s.k == spec.k && s.v == spec.v && s.dim == spec.dim &&
           s.value_dim == spec.value_dim && s.score_facts == spec.score_facts &&
           s.mask_facts == spec.mask_facts;
  };
  {
    const std::shared_lock lock(mutex_);
    if (const auto found = std::ranges::find_if(known_, same); found != known_.end()) return *found;
  }
  spec.score = score_;
  spec.mask = mask_;
  auto made = std::make_shared<run::ForwardKernels>(process().engine, std::move(spec));
  if (base::dump_wanted(base::Dump::plan)) {
    base::dump(base::Dump::plan, "forward",
               to_text(target_) + "\n" + to_text(made->plan(plan::most_vectors)) + "\n");
  }
  const std::unique_lock lock(mutex_);
  if (const auto found = std::ranges::find_if(known_, same); found != known_.end()) return *found;
  known_.push_back(made);
  return made;
}

void Cpu::forward(const Inputs& inputs, double scale, const Bindings& bound, const Layout& given,
                  const ForwardViews& results, Executor& executor) const {
  const layout::Extent extent = extent_of(inputs);
  if (extent.batch == 0 || extent.heads == 0 || extent.queries == 0) return;
  const Layout made =
      given.empty() ? make_layout(extent, compute_type(inputs), bound, executor) : given;
  const layout::Layout& layout = made.held()->layout;
  const std::shared_ptr<run::ForwardKernels> kernels = this->kernels(inputs, bound, layout);

  const Rows q(inputs.q), k(inputs.k), v(inputs.v);
  bool aside = kernels->spec().score_facts.checked || kernels->spec().mask_facts.checked;
  const auto collides = [&](const ConstView& read) {
    aside = aside || overlaps(read, results.out) || (results.lse && overlaps(read, *results.lse)) ||
            (results.max && overlaps(read, *results.max));
  };
  collides(q.view);
  collides(k.view);
  collides(v.view);
  std::ranges::for_each(bound.score, collides);
  std::ranges::for_each(bound.mask, collides);
  const Results written(results, aside);

  const run::ForwardProblem problem{.q = q.view,
                                    .k = k.view,
                                    .v = v.view,
                                    .out = written.views().out,
                                    .lse = written.views().lse,
                                    .max = written.views().max,
                                    .scale = scale,
                                    .layout = &layout,
                                    .score_words = words_of(bound.score),
                                    .mask_words = words_of(bound.mask)};
  if (const auto where = run::forward(*kernels, problem, executor, process().scratch)) {
    report(inputs, scale, bound, layout, *where);
  }
  written.deliver();
}

void Cpu::report(const Inputs& inputs, double scale, const Bindings& bound,
                 const layout::Layout& layout, const run::Poisoned& where) const {
  run::report({.q = inputs.q,
               .k = inputs.k,
               .scale = scale,
               .score_mod = score_mod_,
               .score_memory = bound.score_mod,
               .mask = mask_,
               .mask_memory = bound.mask,
               .layout = &layout},
              where);
}

std::shared_ptr<run::BackwardKernels> Cpu::backward_kernels(const Inputs& inputs,
                                                            const Bindings& bound,
                                                            const layout::Layout& layout) const {
  std::shared_ptr<run::ForwardKernels> forward = kernels(inputs, bound, layout);
  plan::ModFacts facts;
  facts.checked = false;
  if (score_.kind == plan::ScoreForm::Kind::general || !derivative_.contributions.empty()) {
    facts = plan::find_facts(derivative_.graph, bound.derivative, extent_of(inputs),
                             layout.tiles().order());
  }
  const int vectors = plan::vectors_for(target_, compute_type(inputs), layout.tiles().height());
  const std::unique_lock lock(mutex_);
  for (const std::shared_ptr<run::BackwardKernels>& known : known_backward_)
    if (&known->forward() == forward.get() && known->derivative_facts() == facts &&
        known->plan().vectors == vectors)
      return known;
  known_backward_.push_back(std::make_shared<run::BackwardKernels>(
      process().engine, std::move(forward), derivative_, std::move(facts), vectors));
  return known_backward_.back();
}

bool Cpu::backward(const Inputs& inputs, const Saved& saved, const ConstView& dout,
                   const std::optional<ConstView>& dlse, double scale, const Bindings& bound,
                   const Layout& given, const BackwardViews& results, Executor& executor) const {
  const layout::Extent extent = extent_of(inputs);
  // Without a pair there is nothing to add to the zeros that results begin with.
  if (extent.batch == 0 || extent.heads == 0 || extent.queries == 0 || extent.keys == 0)
    return true;
  const Layout made =
      given.empty() ? make_layout(extent, compute_type(inputs), bound, executor) : given;
  const layout::Layout& layout = made.held()->layout;
  const std::shared_ptr<run::BackwardKernels> kernels = backward_kernels(inputs, bound, layout);
  const Rows q(inputs.q), k(inputs.k), v(inputs.v), out(saved.out), gradient(dout);
  const CaptureSums sums(derivative_, results.captures, compute_type(inputs));
  const run::BackwardProblem problem{.q = q.view,
                                     .k = k.view,
                                     .v = v.view,
                                     .out = out.view,
                                     .dout = gradient.view,
                                     .lse = saved.lse,
                                     .dlse = dlse,
                                     .dq = results.dq,
                                     .dk = results.dk,
                                     .dv = results.dv,
                                     .scale = scale,
                                     .layout = &layout,
                                     .score_words = words_of(bound.score),
                                     .mask_words = words_of(bound.mask),
                                     .derivative_words = words_of(bound.derivative),
                                     .captured = sums.captured,
                                     .gradient_strides = sums.strides};
  const run::BackwardDone done = run::backward(*kernels, problem, executor, process().scratch);
  if (done.poisoned) report(inputs, scale, bound, layout, *done.poisoned);
  if (done.not_a_number) return false;
  sums.deliver(results.captures);
  return true;
}

}  // namespace treadle::api
