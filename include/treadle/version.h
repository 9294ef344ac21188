// The version of the library that a program runs with: "0.1.0".
#pragma once

#include <string_view>

#include "treadle/api.h"

namespace treadle {

// Such as "0.1.0".
TREADLE_API std::string_view version();

}  // namespace treadle
