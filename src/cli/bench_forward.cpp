// Forward cases: full, causal, windows, documents and score mods, as shares of the multiply-add
// loop. Read cases() first.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "base/copy.h"
#include "base/error.h"
#include "cli/bench_case.h"
#include "cli/bench_mods.h"
#include "cli/peak.h"
#include "cli/random_tensor.h"
#include "cli/row_check.h"
#include "cli/traced_mask.h"
#include "layout/statistics.h"
#include "treadle/attention.h"
#include "treadle/mods.h"

namespace treadle::cli {
namespace {

struct Shape {
  std::int64_t heads = 8, key_heads = 8, length = 2048, dim = 64;
  DType dtype = DType::f32;
  bool interleaved = false;  // [batch, length, heads, dim] in memory
  std::string target;        // empty: this machine's own
};

struct Forwarded {
  std::string name;
  Shape shape;
  std::function<Options(const Shape&)> options;
  std::function<Options(const Shape&)> compared_with;  // none: not compared
  std::string note;
};

Options plain(const Shape&) { return {}; }

Options causal(const Shape&) {
  Options options;
  options.mask = mods::causal();
  return options;
}

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

Measured measure_forward(const Forwarded& c, Executor& executor) {
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
                  .layout = attention.layout(inputs, {.captures = {}, .executor = shared})};
  Tensor out(s.dtype, {1, s.heads, s.length, s.dim});
  const ForwardViews results{out.view(), std::nullopt, std::nullopt};
  const auto work = [&] { attention.forward_into(results, inputs, call); };
  work();  // compiles

  Measured measured{
      .heads = s.heads, .key_heads = s.key_heads, .queries = s.length, .keys = s.length};
  measured.dtype = name_of(s.dtype);
  measured.dim = measured.value_dim = s.dim;
  measured.error = row_error(options, inputs, out);
  const double most = s.dtype == DType::bf16 ? 2e-2 : s.dtype == DType::f16 ? 2e-3 : 1e-5;
  if (!(*measured.error <= most))
    base::internal_error("bench: {}: the result is off by {}", c.name, *measured.error);

  const TracedMask mask = traced(options.mask);
  const layout::Layout pairs = layout::build(
      mask.mask, {.batch = 1, .heads = s.heads, .queries = s.length, .keys = s.length},
      layout::Tiles({}, s.length, 48), executor);
  measured.density = static_cast<double>(layout::visible_pairs(mask.mask, pairs, executor)) /
                     static_cast<double>(pairs.all_pairs());
  measured.run_density = call.layout.density();
  const double flops =
      4 * *measured.density * static_cast<double>(s.heads * s.length * s.length * s.dim);

  const plan::Target target = s.target.empty() ? plan::host_target() : plan::find_target(s.target);
  Peak peak(target, DType::f32, executor);
  const Share share = measure_share(peak, flops, work);
  measured.ms = share.ms;
  measured.gflops = share.gflops;
  measured.share = share.share;
  measured.note = c.note;
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

// --- mods

Options windowed(const Shape&) {
  Options options;
  options.mask = mods::causal() & mods::window(1024);
  return options;
}

// Sixteen documents of random lengths.
Options documents(const Shape& shape) {
  std::mt19937_64 random(16);
  std::vector<std::int64_t> cuts{0, shape.length};
  for (int i = 0; i < 15; ++i)
    cuts.push_back(std::uniform_int_distribution<std::int64_t>(1, shape.length - 1)(random));
  std::ranges::sort(cuts);
  auto ids = std::make_shared<Tensor>(DType::i32, Dims{shape.length});
  for (std::size_t d = 0; d + 1 < cuts.size(); ++d)
    for (std::int64_t i = cuts[d]; i < cuts[d + 1]; ++i)
      ids->at<std::int32_t>({i}) = static_cast<std::int32_t>(d);
  Options options;
  options.mask = mods::document({"ids", ids});
  return options;
}

Options alibi(const Shape& shape) {
  auto slopes = std::make_shared<Tensor>(DType::f32, Dims{shape.heads});
  for (std::int64_t h = 0; h < shape.heads; ++h)
    slopes->at<float>({h}) = std::exp2(-static_cast<float>(h + 1));
  Options options = causal(shape);
  options.score_mod = mods::alibi({"slopes", slopes});
  return options;
}

Options soft_cap(const Shape&) {
  Options options;
  options.score_mod = mods::soft_cap(20);
  return options;
}

Options relative(const Shape& shape) {
  auto table = std::make_shared<Tensor>(random_tensor({2 * shape.length - 1}, 5));
  Options options;
  options.score_mod = [table = Capture("table", table), length = shape.length](
                          Score s, Index, Index, Index q, Index kv) {
    return s + table(q - kv + (length - 1));
  };
  return options;
}

Options bias(const Shape& shape) {
  auto values =
      std::make_shared<Tensor>(random_tensor({shape.heads, shape.length, shape.length}, 6));
  Options options;
  options.score_mod = [values = Capture("bias", values)](Score s, Index, Index h, Index q,
                                                         Index kv) { return s + values(h, q, kv); };
  return options;
}

std::function<Options(const Shape&)> reading(ScoreMod (*mod)(std::int64_t, Bound), Bound bound) {
  return [=](const Shape& shape) {
    Options options;
    options.score_mod = mod(shape.length, bound);
    return options;
  };
}

Options strided(const Shape&) {
  Options options;
  options.mask = mods::causal() & mods::dilated(128);
  return options;
}

Options fixed(const Shape&) {
  Options options;
  options.mask = [](Index, Index, Index q, Index kv) {
    return q >= kv && (kv % 128 >= 112 || floor_div(q, 128) == floor_div(kv, 128));
  };
  return options;
}

std::vector<Forwarded> cases() {
  std::vector<Forwarded> all;
  const auto add = [&](std::string name, Shape shape, std::function<Options(const Shape&)> options,
                       std::function<Options(const Shape&)> compared_with = {},
                       std::string note = "") {
    all.push_back({std::move(name), std::move(shape), std::move(options), std::move(compared_with),
                   std::move(note)});
  };
  for (const std::int64_t dim : {64, 128, 80, 96, 256, 32})
    add(fmt::format("full-d{}", dim), {.dim = dim}, plain);
  add("causal-2k", {}, causal);
  add("causal-8k", {.length = 8192}, causal);
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const std::int64_t dim : {64, 128})
      add(fmt::format("{}-d{}", name_of(dtype), dim), {.dim = dim, .dtype = dtype}, plain);
  add("window-1024", {.length = 4096}, windowed);
  add("document-16", {.length = 8192}, documents);
  add("alibi", {}, alibi, causal, "ratio: of plain causal");
  add("softcap", {}, soft_cap, plain, "ratio: of plain full");
  add("relative", {}, relative, plain, "ratio: of plain full");
  add("bias", {}, bias, plain, "ratio: of plain full");
  const auto add_reading = [&](const std::string& name, ScoreMod (*mod)(std::int64_t, Bound)) {
    const auto proven = reading(mod, Bound::by_type);
    add(name, {}, proven, plain, "ratio: of plain full");
    add(name + "-clamped", {}, reading(mod, Bound::by_contents), proven,
        "ratio: of the same without clamps");
  };
  add_reading("ids", relative_ids);
  add_reading("document-bias", document_bias);
  add("interleaved", {.interleaved = true}, plain, {}, "heads next to one another in memory");
  add("gqa", {.heads = 32, .key_heads = 8, .length = 1024, .dim = 128}, causal);
  add("strided-4k", {.length = 4096}, strided, {}, "(q - kv) % 128 == 0");
  add("fixed-4k", {.length = 4096}, fixed, {}, "Sparse Transformer, fixed");
  add("haswell-d64", {.target = "haswell"}, plain, {}, "AVX2 code, of its own loop");
  add("x86-64-d64", {.length = 512, .target = "x86-64"}, plain, {}, "SSE2 code, of its own loop");
  return all;
}

}  // namespace

std::vector<BenchCase> forward_cases() {
  std::vector<BenchCase> made;
  for (Forwarded& c : cases()) {
    std::string name = "forward-" + c.name;
    made.push_back({std::move(name), "forward",
                    [c = std::move(c)](Executor& e) { return measure_forward(c, e); }});
  }
  return made;
}

}  // namespace treadle::cli
