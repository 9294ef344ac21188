// What a call throws.
//
//   try {
//     causal.forward({q, k, v});
//   } catch (const treadle::Error& e) {
//     std::cerr << e.what();  // forward: queries have 12 heads, keys 8; 12 is not a multiple of 8
//   }
//
// The message names the call, the values it received and the rule they break.
//
// A call that throws Error, or std::bad_alloc because memory ran out, leaves its outputs untouched:
// it allocates everything before it writes the first result. Later calls are not affected.
//
// There are exceptions. Results may be partly written if the call was stopped (Call::stop), if the
// caller's Executor throws, or if the call needs more memory or another kernel while it runs and
// cannot get it. Infinities and NaNs can have that effect, and so can keys whose rows have to be
// gathered, the first time that a kind of call is made.
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
