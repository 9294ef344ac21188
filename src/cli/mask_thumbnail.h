// A mask in eight letters: 8 x 8 dots on two lines, queries down, keys to the right.
//
//   ⣧⡀        a query sees its past
//   ⣿⣿⣦⡀
#pragma once

#include <array>
#include <string>

#include "cli/demo_variants.h"
#include "treadle/executor.h"
#include "treadle/mod.h"

namespace treadle::cli {

// Of the first batch entry and head. A dot stands for an eighth of the queries x an eighth of the
// keys and is set if at least a quarter of these pairs is visible; where it is fewer, every other
// dot. Fewer than eight queries have a row of dots each.
std::array<std::string, 2> mask_thumbnail(const MaskMod& mask, const Sizes& sizes,
                                          Executor& executor);

}  // namespace treadle::cli
