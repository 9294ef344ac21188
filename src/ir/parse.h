// Text to graphs. The grammar is in docs/text.md; operators, their order and `//` `%` are Python's.
//
//   parse("where(q >= kv, score + slopes[h]*(kv - q), -inf)", {{"slopes", DType::f32, 1}})
//
// A mistake is a treadle::Error that shows the line with a caret under the place:
//
//   parse: unknown name "slops"; known are score, b, h, q, kv, slopes
//     score + slops[h]
//             ^
#pragma once

#include <span>
#include <string_view>

#include "ir/graph.h"

namespace treadle::ir {

// Which inputs the text may name. Only derivatives know `grad`, and no user writes one.
enum class Names { user, derivative };

Graph parse(std::string_view text, std::span<const Slot> captures, Names names = Names::user);

}  // namespace treadle::ir
