// The errors that a caller can cause.
//
//   try {
//     causal.forward({q, k, v});
//   } catch (const treadle::Error& e) {
//     std::cerr << e.what();  // forward: queries have 12 heads, keys 8; 12 is not a multiple of 8
//   }
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

// A mod went wrong at a visible pair: it read outside of a capture, or divided by zero.
class TREADLE_API ModError : public Error {
 public:
  using Error::Error;
};

}  // namespace treadle
