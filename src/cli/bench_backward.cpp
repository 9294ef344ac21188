// Backward cases: full, causal, masks, and captures whose gradients are taken.
#include <fmt/core.h>

#include <functional>
#include <memory>

#include "cli/bench_attention.h"
#include "cli/bench_masks.h"
#include "cli/bench_mods.h"
#include "cli/random_tensor.h"
#include "treadle/mods.h"

namespace treadle::cli {
namespace {

ScoreMod learned_relative(const BackwardCase& c) {
  auto table = std::make_shared<Tensor>(random_tensor({2 * c.length - 1}, 5));
  return [table = Capture("c", table), length = c.length](
             Score s, Index, Index, Index q, Index kv) { return s + table(q - kv + (length - 1)); };
}

ScoreMod learned_bias(const BackwardCase& c) {
  auto values = std::make_shared<Tensor>(random_tensor({c.heads, c.length, c.length}, 6));
  return [values = Capture("c", values)](Score s, Index, Index h, Index q, Index kv) {
    return s + values(h, q, kv);
  };
}

std::function<ScoreMod(const BackwardCase&)> learned_reading(ScoreMod (*mod)(std::int64_t, Bound),
                                                             Bound bound) {
  return [=](const BackwardCase& c) { return mod(c.length, bound); };
}

}  // namespace

std::vector<BenchCase> backward_cases() {
  const MaskMod causal = mods::causal();
  std::vector<BenchCase> made;
  for (const BackwardCase& c :
       {BackwardCase{"full-d64"}, BackwardCase{.name = "full-d128", .dim = 128},
        BackwardCase{.name = "causal-2k", .mask = causal},
        BackwardCase{.name = "causal-4k", .length = 4096, .mask = causal},
        BackwardCase{.name = "bf16-d64", .dtype = DType::bf16},
        BackwardCase{.name = "bf16-d128", .dim = 128, .dtype = DType::bf16},
        BackwardCase{.name = "full-512", .heads = 16, .length = 512},
        BackwardCase{.name = "causal-512", .heads = 16, .length = 512, .mask = causal},
        BackwardCase{.name = "window-1024", .length = 4096, .mask = causal_window()},
        BackwardCase{.name = "document-16", .length = 8192, .mask = random_documents(8192)},
        BackwardCase{.name = "relative", .mask = causal, .learned = learned_relative},
        BackwardCase{.name = "bias", .learned = learned_bias},
        BackwardCase{.name = "ids", .learned = learned_reading(relative_ids, Bound::by_type)},
        BackwardCase{.name = "ids-clamped",
                     .learned = learned_reading(relative_ids, Bound::by_contents),
                     .compared_with = learned_reading(relative_ids, Bound::by_type)},
        BackwardCase{.name = "document-bias",
                     .learned = learned_reading(document_bias, Bound::by_type)},
        BackwardCase{.name = "document-bias-clamped",
                     .learned = learned_reading(document_bias, Bound::by_contents),
                     .compared_with = learned_reading(document_bias, Bound::by_type)},
        BackwardCase{.name = "dropout", .dropout = {.probability = 0.1, .seed = 1}},
        BackwardCase{.name = "one-head-8k", .heads = 1, .length = 8192, .mask = causal},
        BackwardCase{.name = "one-head-16k", .heads = 1, .length = 16384, .mask = causal}}) {
    made.push_back(
        {"backward-" + c.name, "backward", [c](Executor& e) { return measure_backward(c, e); }});
  }
  return made;
}

}  // namespace treadle::cli
