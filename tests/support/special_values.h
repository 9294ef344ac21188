// Infinity and NaN by short names.
#pragma once

#include <limits>

namespace treadle::test {

inline constexpr double inf = std::numeric_limits<double>::infinity();
inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();

}  // namespace treadle::test
