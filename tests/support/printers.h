// How gtest shows values of ours: in failures, and as parameters of tests.
//
// Part of the tests' precompiled header, so that every file of a program prints alike.
#pragma once

#include <ostream>

#include "treadle/dtype.h"

namespace treadle {

inline void PrintTo(DType type, std::ostream* out) { *out << name_of(type); }

}  // namespace treadle
