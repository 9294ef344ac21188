// A Target: the machine that kernels are made for.
//
//   Target here = host_target();            // TREADLE_TARGET=haswell overrides what was found
//   Target other = find_target("x86-64");   // any machine of the table, also one that is not here
//
// What a kernel looks like follows from these numbers alone, so every machine that LLVM knows works
// the same way: a row of the table in target.cpp is all it needs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "treadle/dtype.h"

namespace treadle::plan {

struct Target {
  std::string name;    // "haswell"
  std::string cpu;     // what LLVM calls the processor
  std::string triple;  // "x86_64-unknown-linux-gnu"
  int vector_bytes = 16;
  int registers = 16;         // vector registers
  bool fma = false;           // else a * b + c takes two instructions and two roundings
  bool rounding = false;      // rounds floats to whole numbers in one instruction
  bool half = false;          // converts 16-bit floats in hardware
  bool masked_loads = false;  // loads some lanes of 4 or 8 bytes in one instruction
  bool avx512 = false;        // masked loads of any width, and scalef: x * 2^n for a float n
  int libmvec = 0;  // bytes of the widest vectors that glibc's vector math takes; 0: there is none
  // A product of vectors takes two turns of the multipliers, which are half as wide, as on Zen 4.
  // Then loads keep up with products also in tiles of one vector.
  bool half_wide = false;
  // Loads keep up with products that take one turn, too, as on Zen 5.
  bool wide_loads = false;
  std::int64_t l1 = 32 << 10, l2 = 512 << 10;  // bytes, of one core
  int cores = 1;

  // Elements of a vector of this compute type, f32 or f64.
  [[nodiscard]] int lanes(DType compute) const {
    // Without a division: loops ask for the width of their tiles.
    return compute == DType::f64 ? vector_bytes / 8 : vector_bytes / 4;
  }
  bool operator==(const Target&) const = default;
};

// The machine that this runs on, or the one that TREADLE_TARGET names; caches and cores are always
// those found here. Throws treadle::Error for a name that is not in the table, and for a machine
// whose code cannot run here.
Target host_target();

// By name, with ordinary caches and one core.
Target find_target(std::string_view name);

// The names of the table whose code this machine can run. Some of them are used only when asked
// for.
std::vector<std::string> runnable_targets();

// What a processor must have to run the code of that target.
std::vector<std::string> needed_features(std::string_view name);

// Everything in it that code depends on; not cores.
base::Hash hash(const Target& target);

// "haswell: 32-byte vectors, 16 registers, fma, ...": one line for a human reader.
std::string to_text(const Target& target);

}  // namespace treadle::plan
