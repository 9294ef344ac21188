// Checks and times a backward pass, as a share of the multiply-add loop.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "base/copy.h"
#include "base/error.h"
#include "cli/bench_attention.h"
#include "cli/random_tensor.h"
#include "cli/visible_share.h"

namespace treadle::cli {
namespace {

Tensor input(const BackwardCase& c, std::uint64_t seed) {
  Tensor tensor = random_tensor({1, c.heads, c.length, c.dim}, seed);
  return c.dtype == DType::f32 ? std::move(tensor) : base::convert(tensor, c.dtype);
}

// The mask of positions that begin here.
MaskMod shifted(const MaskMod& mask, std::int64_t by) {
  return [mask, by](Index b, Index h, Index q, Index kv) { return mask(b, h, q + by, kv + by); };
}

// The largest difference of dq, dk and dv from the reference's, in units of the largest number, on
// a short piece of the same kind of problem, out of the middle.
double error_of(const BackwardCase& given, const std::shared_ptr<Executor>& executor) {
  BackwardCase c = given;
  c.heads = 1;
  c.length = std::min<std::int64_t>(c.length, 400);
  c.mask = shifted(given.mask, (given.length - c.length) / 2);
  const Tensor q = input(c, 1), k = input(c, 2), v = input(c, 3), dout = input(c, 4);
  const auto gradients = [&](Backend backend) {
    Options options{.mask = c.mask, .backend = backend};
    const bool exact = backend == Backend::reference;
    const auto as = [&](const Tensor& t) { return base::convert(t, exact ? DType::f64 : c.dtype); };
    const Tensor x = as(q), y = as(k), z = as(v), g = as(dout);
    const Attention attention = compile(options);
    const Call call{.executor = executor, .lse = true, .dropout = c.dropout};
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

}  // namespace

Measured measure_backward(const BackwardCase& c, Executor& executor) {
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
                  .lse = true,
                  .dropout = c.dropout};
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
  measured.density =
      visible_share(c.mask, {.heads = c.heads, .queries = c.length, .keys = c.length}, executor);
  measured.run_density = call.layout.density();
  const double flops =
      10 * *measured.density * static_cast<double>(c.heads * c.length * c.length * c.dim);
  Peak peak(plan::host_target(), DType::f32, executor);
  put(measured, measure_share(peak, flops, work));
  measured.note = c.note;
  if (c.dropout.probability > 0) {
    Call without = call;
    without.dropout = {};
    const Forward other = attention.forward(inputs, without);
    const auto base = [&] {
      attention.backward_into(plain_results, inputs, {other.out, other.lse}, dout, std::nullopt,
                              without);
    };
    base();
    measured.ratio = measure_ratio(base, work);
    measured.note = "ratio: of the same without dropout";
  }
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

}  // namespace treadle::cli
