// Makes the masks that are more than a formula.
#include "cli/bench_masks.h"

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "treadle/capture.h"
#include "treadle/mods.h"
#include "treadle/patterns.h"
#include "treadle/tensor.h"

namespace treadle::cli {

MaskMod causal_window() { return mods::causal() & mods::window(1024); }

MaskMod random_documents(std::int64_t length, int count) {
  std::mt19937_64 random(16);
  std::vector<std::int64_t> cuts{0, length};
  for (int i = 0; i < count - 1; ++i)
    cuts.push_back(std::uniform_int_distribution<std::int64_t>(1, length - 1)(random));
  std::ranges::sort(cuts);
  auto ids = std::make_shared<Tensor>(DType::i32, Dims{length});
  for (std::size_t d = 0; d + 1 < cuts.size(); ++d)
    for (std::int64_t i = cuts[d]; i < cuts[d + 1]; ++i)
      ids->at<std::int32_t>({i}) = static_cast<std::int32_t>(d);
  return mods::document({"ids", ids});
}

MaskMod bigbird_blocks(std::int64_t length, std::int64_t heads) {
  return patterns::bigbird(
      {.length = length, .heads = heads, .block_size = 64, .reach = 1, .global = 2, .random = 3});
}

MaskMod square_neighborhood(std::int64_t side) {
  const patterns::Axis axis{.length = side, .window = 13};
  return patterns::neighborhood({axis, axis});
}

}  // namespace treadle::cli
