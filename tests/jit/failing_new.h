// An operator new that fails on demand, in the whole test program.
//
//   fail_allocations({.after = 700, .how_many = 1});   // the 701st from now on throws bad_alloc
//   ...
//   fail_allocations({});                              // never
#pragma once

#include <cstdint>

namespace treadle::test {

struct Failures {
  std::int64_t after = 0, how_many = 0;
};

// Not under sanitizers, which have their own; false then.
bool fail_allocations(const Failures& failures);

// Allocations since the last call of fail_allocations().
std::int64_t count_allocations();

}  // namespace treadle::test
