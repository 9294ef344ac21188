// The one error type a caller can cause.
//
//   try { ... } catch (const treadle::Error& e) { std::cerr << e.what(); }
//   forward: queries have 12 heads, keys 8; 12 is not a multiple of 8
//
// The message names the call, the numbers seen and the rule. A call that throws has written
// nothing.
#pragma once

#include <stdexcept>

#include "treadle/api.h"

namespace treadle {

class TREADLE_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace treadle
