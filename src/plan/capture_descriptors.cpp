// Views of captures as words that kernels read.
#include "plan/capture_descriptors.h"

namespace treadle::plan {

void describe_captures(const std::vector<ConstView>& memory, std::vector<std::int64_t>& words) {
  words.clear();
  for (const ConstView& view : memory) {
    words.push_back(reinterpret_cast<std::int64_t>(view.data()));
    words.insert(words.end(), view.shape().begin(), view.shape().end());
    words.insert(words.end(), view.strides().begin(), view.strides().end());
  }
}

std::vector<std::int64_t> capture_descriptors(const std::vector<ConstView>& memory) {
  std::vector<std::int64_t> words;
  describe_captures(memory, words);
  return words;
}

}  // namespace treadle::plan
