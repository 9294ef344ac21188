// Checks and times a forward pass, as a share of the multiply-add loop.
#include <memory>
#include <optional>

#include "base/copy.h"
#include "base/error.h"
#include "cli/bench_attention.h"
#include "cli/random_tensor.h"
#include "cli/row_check.h"
#include "cli/visible_share.h"

namespace treadle::cli {
namespace {

Tensor random_input(const Shape& shape, std::int64_t heads, std::uint64_t seed) {
  const Dims dims = shape.interleaved ? Dims{1, shape.length, heads, shape.dim}
                                      : Dims{1, heads, shape.length, shape.dim};
  Tensor tensor = random_tensor(dims, seed);
  return shape.dtype == DType::f32 ? std::move(tensor) : base::convert(tensor, shape.dtype);
}

ConstView input_view(const Shape& shape, const Tensor& tensor) {
  if (!shape.interleaved) return tensor;
  const ConstView view = tensor;
  return {view.data(),
          view.dtype(),
          {1, view.size(2), view.size(1), view.size(3)},
          {view.stride(0), view.stride(2), view.stride(1), 1}};
}

}  // namespace

void put(Measured& measured, const Share& share) {
  measured.ms = share.ms;
  measured.gflops = share.gflops;
  measured.share = share.share;
}

Measured measure_forward(const ForwardCase& c, Executor& executor) {
  const Shape& s = c.shape;
  const Tensor q = random_input(s, s.heads, 1), k = random_input(s, s.key_heads, 2),
               v = random_input(s, s.key_heads, 3);
  const Inputs inputs{input_view(s, q), input_view(s, k), input_view(s, v)};
  const std::shared_ptr<Executor> shared(&executor, [](Executor*) {});
  const auto prepare = [&](const Options& given) {
    Options options = given;
    options.target = s.target;
    return compile(options);
  };
  const Options options = c.options(s);
  const Attention attention = prepare(options);
  const Call call{.captures = {},
                  .executor = shared,
                  .layout = attention.layout(inputs, {.captures = {}, .executor = shared}),
                  .dropout = c.dropout};
  Tensor out(s.dtype, {1, s.heads, s.length, s.dim});
  const ForwardViews results{out.view(), std::nullopt, std::nullopt};
  const auto work = [&] { attention.forward_into(results, inputs, call); };
  work();  // compiles

  Measured measured{
      .heads = s.heads, .key_heads = s.key_heads, .queries = s.length, .keys = s.length};
  measured.dtype = name_of(s.dtype);
  measured.dim = measured.value_dim = s.dim;
  measured.error = row_error(options, inputs, out, c.dropout);
  const double most = s.dtype == DType::bf16 ? 2e-2 : s.dtype == DType::f16 ? 2e-3 : 1e-5;
  if (!(*measured.error <= most))
    base::internal_error("bench: {}: the result is off by {}", c.name, *measured.error);

  measured.density = visible_share(
      options.mask, {.heads = s.heads, .queries = s.length, .keys = s.length}, executor);
  measured.run_density = call.layout.density();
  const double flops =
      4 * *measured.density * static_cast<double>(s.heads * s.length * s.length * s.dim);

  const plan::Target target = s.target.empty() ? plan::host_target() : plan::find_target(s.target);
  Peak peak(target, DType::f32, executor);
  put(measured, measure_share(peak, flops, work));
  measured.note = c.note;
  if (c.dropout.probability > 0) {
    Call without = call;
    without.dropout = {};
    const auto base = [&] { attention.forward_into(results, inputs, without); };
    base();
    measured.ratio = measure_ratio(base, work);
  }
  if (c.compared_with) {
    const Attention other = prepare(c.compared_with(s));
    Call other_call = call;
    other_call.layout = other.layout(inputs, {.captures = {}, .executor = shared});
    const auto base = [&] { other.forward_into(results, inputs, other_call); };
    base();
    measured.ratio = measure_ratio(base, work);
  }
  return measured;
}

}  // namespace treadle::cli
