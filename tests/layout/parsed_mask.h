// A mask that is written as text: mask_of("q >= kv").
#pragma once

#include <string_view>

#include "ir/parse.h"
#include "layout/build.h"

namespace treadle::layout {

inline Mask mask_of(std::string_view text) { return {ir::parse(text, {}), {}}; }

}  // namespace treadle::layout
