// The captures of these mods, and the mods.
#include "cli/bench_mods.h"

#include <memory>

#include "cli/random_tensor.h"
#include "treadle/capture.h"
#include "treadle/tensor.h"

namespace treadle::cli {
namespace {

// At most 127: far from the ends of the tables.
std::shared_ptr<Tensor> small_integers(std::int64_t length, std::int64_t run, std::int64_t step) {
  auto made = std::make_shared<Tensor>(DType::u8, Dims{length});
  for (std::int64_t i = 0; i < length; ++i)
    made->at<std::uint8_t>({i}) = static_cast<std::uint8_t>(i / run * step % 128);
  return made;
}

std::int64_t size_for(std::int64_t all, Bound bound) {
  return bound == Bound::by_type ? all : all - 1;
}

}  // namespace

ScoreMod relative_ids(std::int64_t length, Bound bound) {
  auto table = std::make_shared<Tensor>(random_tensor({size_for(511, bound)}, 5));
  return
      [table = Capture("c", table), ids = Capture("ids", small_integers(length, 1, 37))](
          Score s, Index, Index, Index q, Index kv) { return s + table(ids(q) - ids(kv) + 255); };
}

ScoreMod document_bias(std::int64_t length, Bound bound) {
  const std::int64_t size = size_for(256, bound);
  auto bias = std::make_shared<Tensor>(random_tensor({size, size}, 6));
  return
      [bias = Capture("c", bias), documents = Capture("documents", small_integers(length, 20, 1))](
          Score s, Index, Index, Index q, Index kv) {
        return s + bias(documents(q), documents(kv));
      };
}

}  // namespace treadle::cli
