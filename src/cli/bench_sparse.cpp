// Sparse cases: the Sparse Transformer's patterns, dilated windows, BigBird and neighbourhoods, each
// forward and backward. Useful work is that of visible pairs.
#include <fmt/core.h>

#include "cli/bench_attention.h"
#include "cli/bench_masks.h"

namespace treadle::cli {
namespace {

struct SparsePattern {
  static constexpr std::int64_t heads = 8;
  std::string name;
  std::int64_t length;
  MaskMod mask;
  std::string note;
};

std::vector<SparsePattern> sparse_patterns() {
  std::vector<SparsePattern> all;
  const auto add = [&](const char* name, const char* text, std::int64_t thousands) {
    all.push_back({fmt::format("{}-{}k", name, thousands), thousands * 1024, parse(text), text});
  };
  for (const std::int64_t thousands : {4, 16}) {
    add("strided", strided_text, thousands);
    add("local-or-strided", local_or_strided_text, thousands);
    add("fixed", fixed_text, thousands);
  }
  add("local", local_text, 16);
  add("dilated", dilated_text, 8);
  all.push_back({"bigbird-8k", 8192, bigbird_blocks(8192, SparsePattern::heads),
                 "blocks of 64: 3 window, 2 global, 3 random"});
  all.push_back({"neighborhood-64", 64 * 64, square_neighborhood(64), "13 x 13 on a 64 x 64 grid"});
  return all;
}

}  // namespace

std::vector<BenchCase> sparse_cases() {
  std::vector<BenchCase> made;
  for (const SparsePattern& c : sparse_patterns()) {
    const std::string name = "sparse-" + c.name;
    const ForwardCase forward{.name = name,
                              .shape = {.heads = c.heads, .key_heads = c.heads, .length = c.length},
                              .options =
                                  [mask = c.mask](const Shape&) {
                                    Options options;
                                    options.mask = mask;
                                    return options;
                                  },
                              .note = c.note};
    const BackwardCase backward{.name = name + "-backward",
                                .heads = c.heads,
                                .length = c.length,
                                .mask = c.mask,
                                .note = c.note};
    made.push_back(
        {forward.name, "forward", [=](Executor& e) { return measure_forward(forward, e); }});
    made.push_back(
        {backward.name, "backward", [=](Executor& e) { return measure_backward(backward, e); }});
  }
  return made;
}

}  // namespace treadle::cli
