// Backward cases, as shares of the multiply-add loop; useful work is 2.5 times the forward's.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "base/copy.h"
#include "base/error.h"
#include "cli/bench_case.h"
#include "cli/bench_mods.h"
#include "cli/peak.h"
#include "cli/random_tensor.h"
#include "cli/traced_mask.h"
#include "layout/statistics.h"
#include "treadle/attention.h"
#include "treadle/mods.h"

namespace treadle::cli {
namespace {

struct Case {
  std::string name;
  std::int64_t heads = 8, length = 2048, dim = 64;
  DType dtype = DType::f32;
  MaskMod mask = {};
  // A score mod with a capture "c" whose gradient is taken; the ratio is to the same without it, or
  // to another such mod.
  std::function<ScoreMod(const Case&)> learned = {}, compared_with = {};
};

Tensor input(const Case& c, std::uint64_t seed) {
  Tensor tensor = random_tensor({1, c.heads, c.length, c.dim}, seed);
  return c.dtype == DType::f32 ? std::move(tensor) : base::convert(tensor, c.dtype);
}

// The largest difference of dq, dk and dv from the reference's, in units of the largest number, on
// a short piece of the same kind of problem.
double error_of(const Case& given, const std::shared_ptr<Executor>& executor) {
  Case c = given;
  c.heads = 1;
  c.length = std::min<std::int64_t>(c.length, 160);
  const Tensor q = input(c, 1), k = input(c, 2), v = input(c, 3), dout = input(c, 4);
  const auto gradients = [&](Backend backend) {
    Options options{.mask = c.mask, .backend = backend};
    const bool exact = backend == Backend::reference;
    const auto as = [&](const Tensor& t) { return base::convert(t, exact ? DType::f64 : c.dtype); };
    const Tensor x = as(q), y = as(k), z = as(v), g = as(dout);
    const Attention attention = compile(options);
    const Call call{.executor = executor, .lse = true};
    const Forward forward = attention.forward({x, y, z}, call);
    return attention.backward({x, y, z}, {forward.out, forward.lse}, g, std::nullopt, call);
  };
  const Backward seen = gradients(Backend::cpu), exact = gradients(Backend::reference);
  double error = 0;
  const auto compare = [&](const Tensor& a, const Tensor& b) {
    const Tensor wide = base::convert(a, DType::f64);
    double largest = 0, difference = 0;
    for (std::size_t i = 0; i < wide.data<double>().size(); ++i) {
      largest = std::max(largest, std::abs(b.data<double>()[i]));
      difference = std::max(difference, std::abs(wide.data<double>()[i] - b.data<double>()[i]));
    }
    error = std::max(error, difference / largest);
  };
  compare(seen.dq, exact.dq);
  compare(seen.dk, exact.dk);
  compare(seen.dv, exact.dv);
  return error;
}

Measured measure_backward(const Case& c, Executor& executor) {
  const std::shared_ptr<Executor> shared(&executor, [](Executor*) {});
  Measured measured{.heads = c.heads, .key_heads = c.heads, .queries = c.length, .keys = c.length};
  measured.dtype = name_of(c.dtype);
  measured.dim = measured.value_dim = c.dim;
  measured.error = error_of(c, shared);
  const double most = c.dtype == DType::f32 ? 1e-5 : 3e-2;
  if (!(*measured.error <= most))
    base::internal_error("bench: {}: gradients are off by {}", c.name, *measured.error);

  const Tensor q = input(c, 1), k = input(c, 2), v = input(c, 3), dout = input(c, 4);
  const Inputs inputs{q, k, v};
  Options options{.mask = c.mask};
  if (c.compared_with) {
    options.score_mod = c.compared_with(c);
    options.gradients = {"c"};
  }
  const Attention plain = compile(options);
  if (c.learned) {
    options.score_mod = c.learned(c);
    options.gradients = {"c"};
  }
  const Attention attention = compile(options);
  const Call call{.captures = {},
                  .executor = shared,
                  .layout = attention.layout(inputs, {.captures = {}, .executor = shared}),
                  .lse = true};
  const Forward forward = attention.forward(inputs, call);
  Tensor dq(c.dtype, q.shape()), dk(c.dtype, k.shape()), dv(c.dtype, v.shape()), dcapture;
  BackwardViews results{dq, dk, dv, {}};
  BackwardViews plain_results = results;
  const auto gradient_of = [&](const Attention& of, const Forward& saved) {
    return of.backward(inputs, {saved.out, saved.lse}, dout, std::nullopt, call).of("c").clone();
  };
  if (c.learned) {
    dcapture = gradient_of(attention, forward);
    results.captures.push_back({"c", dcapture});
  }
  const auto work = [&] {
    attention.backward_into(results, inputs, {forward.out, forward.lse}, dout, std::nullopt, call);
  };
  work();
  const TracedMask mask = traced(c.mask);
  const layout::Layout pairs = layout::build(
      mask.mask, {.batch = 1, .heads = c.heads, .queries = c.length, .keys = c.length},
      layout::Tiles({}, c.length, 48), executor);
  measured.density = static_cast<double>(layout::visible_pairs(mask.mask, pairs, executor)) /
                     static_cast<double>(pairs.all_pairs());
  measured.run_density = call.layout.density();
  const double flops =
      10 * *measured.density * static_cast<double>(c.heads * c.length * c.length * c.dim);
  Peak peak(plan::host_target(), DType::f32, executor);
  const Share share = measure_share(peak, flops, work);
  measured.ms = share.ms;
  measured.gflops = share.gflops;
  measured.share = share.share;
  if (c.learned) {
    const Forward other = plain.forward(inputs, call);
    Tensor other_gradient;
    if (c.compared_with) {
      other_gradient = gradient_of(plain, other);
      plain_results.captures.push_back({"c", other_gradient});
    }
    const auto base = [&] {
      plain.backward_into(plain_results, inputs, {other.out, other.lse}, dout, std::nullopt, call);
    };
    measured.ratio = measure_ratio(base, work);
    measured.note = c.compared_with ? "ratio: of the same without clamps"
                                    : "ratio: of the same without the capture";
  }
  return measured;
}

ScoreMod learned_relative(const Case& c) {
  auto table = std::make_shared<Tensor>(random_tensor({2 * c.length - 1}, 5));
  return [table = Capture("c", table), length = c.length](
             Score s, Index, Index, Index q, Index kv) { return s + table(q - kv + (length - 1)); };
}

ScoreMod learned_bias(const Case& c) {
  auto values = std::make_shared<Tensor>(random_tensor({c.heads, c.length, c.length}, 6));
  return [values = Capture("c", values)](Score s, Index, Index h, Index q, Index kv) {
    return s + values(h, q, kv);
  };
}

std::function<ScoreMod(const Case&)> learned_reading(ScoreMod (*mod)(std::int64_t, Bound),
                                                     Bound bound) {
  return [=](const Case& c) { return mod(c.length, bound); };
}

}  // namespace

std::vector<BenchCase> backward_cases() {
  const MaskMod causal = mods::causal();
  std::vector<BenchCase> made;
  for (const Case& c :
       {Case{"full-d64"}, Case{.name = "full-d128", .dim = 128},
        Case{.name = "causal-2k", .mask = causal},
        Case{.name = "causal-4k", .length = 4096, .mask = causal},
        Case{.name = "bf16-d64", .dtype = DType::bf16},
        Case{.name = "bf16-d128", .dim = 128, .dtype = DType::bf16},
        Case{.name = "full-512", .heads = 16, .length = 512},
        Case{.name = "causal-512", .heads = 16, .length = 512, .mask = causal},
        Case{.name = "window-1024", .length = 4096, .mask = causal & mods::window(1024)},
        Case{.name = "relative", .mask = causal, .learned = learned_relative},
        Case{.name = "bias", .learned = learned_bias},
        Case{.name = "ids", .learned = learned_reading(relative_ids, Bound::by_type)},
        Case{.name = "ids-clamped",
             .learned = learned_reading(relative_ids, Bound::by_contents),
             .compared_with = learned_reading(relative_ids, Bound::by_type)},
        Case{.name = "document-bias", .learned = learned_reading(document_bias, Bound::by_type)},
        Case{.name = "document-bias-clamped",
             .learned = learned_reading(document_bias, Bound::by_contents),
             .compared_with = learned_reading(document_bias, Bound::by_type)},
        Case{.name = "one-head-8k", .heads = 1, .length = 8192, .mask = causal}}) {
    made.push_back(
        {"backward-" + c.name, "backward", [c](Executor& e) { return measure_backward(c, e); }});
  }
  return made;
}

}  // namespace treadle::cli
