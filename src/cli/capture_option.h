// Captures on a command line: --capture slopes:f32:1 --capture window:i64:0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "treadle/capture.h"
#include "treadle/dtype.h"

namespace treadle::cli {

// Captures without memory, good for tracing only. Throws treadle::Error for what is not
// name:dtype:rank.
std::vector<Capture> captures_from(const std::vector<std::string>& texts);

// The element type of this name. Throws with `where` in front and all names for others.
DType dtype_from(std::string_view where, std::string_view name);

// Adds to a list after a look at the name: it must be one, and not be taken.
void add_capture(std::string_view command, std::vector<Capture>& captures, Capture capture);

}  // namespace treadle::cli
