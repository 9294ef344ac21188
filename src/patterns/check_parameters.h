// Checks that many patterns share. Each message names the call, the number seen and the rule.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.h"

namespace treadle::patterns {

inline void check_at_least(std::string_view call, std::string_view what, std::int64_t value,
                           std::int64_t least) {
  if (value < least)
    base::fail("{}: the {} is {}; it must be at least {}", call, what, value, least);
}

inline void check_multiple(std::string_view call, std::string_view what, std::int64_t value,
                           std::string_view of, std::int64_t factor) {
  if (value % factor != 0) {
    base::fail("{}: the {} is {}, the {} {}; {} is not a multiple of {}", call, what, value, of,
               factor, value, factor);
  }
}

}  // namespace treadle::patterns
