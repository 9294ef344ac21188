// Marks what libtreadle.so shows to the outside; everything else is hidden.
//
//   TREADLE_API void f();
//   class TREADLE_API C {};
#pragma once

// Shown by libtreadle.so.
#define TREADLE_API __attribute__((visibility("default")))
