// Forward cases: full, causal, windows, documents and score mods. Read cases() first.
#include <fmt/core.h>

#include <cmath>
#include <memory>
#include <utility>

#include "cli/bench_attention.h"
#include "cli/bench_masks.h"
#include "cli/bench_mods.h"
#include "cli/random_tensor.h"
#include "treadle/mods.h"

namespace treadle::cli {
namespace {

Options plain(const Shape&) { return {}; }

Options causal(const Shape&) {
  Options options;
  options.mask = mods::causal();
  return options;
}

std::function<Options(const Shape&)> masked(MaskMod mask) {
  return [mask = std::move(mask)](const Shape&) {
    Options options;
    options.mask = mask;
    return options;
  };
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

std::vector<ForwardCase> cases() {
  std::vector<ForwardCase> all;
  const auto add = [&](std::string name, Shape shape, std::function<Options(const Shape&)> options,
                       std::function<Options(const Shape&)> compared_with = {},
                       std::string note = "") {
    all.push_back({std::move(name),
                   std::move(shape),
                   std::move(options),
                   std::move(compared_with),
                   std::move(note),
                   {}});
  };
  for (const std::int64_t dim : {64, 128, 80, 96, 256, 32})
    add(fmt::format("full-d{}", dim), {.dim = dim}, plain);
  add("causal-2k", {}, causal);
  add("causal-8k", {.length = 8192}, causal);
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const std::int64_t dim : {64, 128})
      add(fmt::format("{}-d{}", name_of(dtype), dim), {.dim = dim, .dtype = dtype}, plain);
  add("window-1024", {.length = 4096}, masked(causal_window()));
  add("document-16", {.length = 8192}, masked(random_documents(8192)));
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
  add("dropout", {}, plain, {}, "ratio: of the same without dropout");
  all.back().dropout = {.probability = 0.1, .seed = 1};
  add("interleaved", {.interleaved = true}, plain, {}, "heads next to one another in memory");
  add("gqa", {.heads = 32, .key_heads = 8, .length = 1024, .dim = 128}, causal);
  add("haswell-d64", {.target = "haswell"}, plain, {}, "AVX2 code, of its own loop");
  add("x86-64-d64", {.length = 512, .target = "x86-64"}, plain, {}, "SSE2 code, of its own loop");
  return all;
}

}  // namespace

std::vector<BenchCase> forward_cases() {
  std::vector<BenchCase> made;
  for (ForwardCase& c : cases()) {
    std::string name = "forward-" + c.name;
    made.push_back({std::move(name), "forward",
                    [c = std::move(c)](Executor& e) { return measure_forward(c, e); }});
  }
  return made;
}

}  // namespace treadle::cli
