// Where a graph's captures are, as kernels read it: for each slot, in order, 1 + 2 * rank words of
// 8 bytes: the address of element 0, then the sizes, then the strides in elements.
#pragma once

#include <cstdint>
#include <vector>

#include "treadle/view.h"

namespace treadle::plan {

// memory[i] is bound to slot i.
std::vector<std::int64_t> capture_descriptors(const std::vector<ConstView>& memory);
// The same into `words`, whose memory is used again.
void describe_captures(const std::vector<ConstView>& memory, std::vector<std::int64_t>& words);

}  // namespace treadle::plan
