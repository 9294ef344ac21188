// What a call throws.
//
//   try {
//     causal.forward({q, k, v});
//   } catch (const treadle::Error& e) {
//     std::cerr << e.what();  // forward: queries have 12 heads, keys 8; 12 is not a multiple of 8
//   }
//
// The message names the call, the numbers seen and the rule.
//
// A call that throws Error, or std::bad_alloc because memory ran out, has written nothing to the
// results: all that it needs is taken before the first of them is written. The next call is not
// affected by one that threw.
//
// What is not promised: results may be written in part when the call was stopped (Call::stop), when
// an Executor of the caller's throws, and when a need turns up on the way that cannot be met, a
// kernel to compile or memory. Infinities and NaNs bring such needs, and keys whose rows have to be
// gathered do when a kind of call is made for the first time.
#pragma once

#include <stdexcept>

#include "treadle/api.h"

namespace treadle {

// A mistake of the caller's.
class TREADLE_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A mod went wrong at a visible pair: it read outside of a capture, or divided by zero.
class TREADLE_API ModError : public Error {
 public:
  using Error::Error;
};

// The call ended early because Call::stop asked for it. Not an Error: nobody made a mistake, and
// who catches Error to report one, or to try something else, must not go on with a stopped call.
class TREADLE_API Stopped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace treadle
