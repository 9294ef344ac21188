// A Box: a set of points (b, h, q, kv), each coordinate running on its own.
//
//   Box box;                          one point, all zero
//   box.q = {.low = 96, .count = 48}; queries 96 .. 143
//   box.kv = {.low = 0, .count = 1024};
//
// Queries and keys may run in steps (a residue class: low, low + step, ...) and in a second, outer
// loop (a rectangle of a grid of width w: columns in steps of 1, rows in steps of w; some residues
// modulo m: those in steps of 1, periods in steps of m).
#pragma once

#include <array>
#include <cstdint>

#include "ir/op.h"

namespace treadle::passes {

struct Axis {
  std::int64_t low = 0;
  std::int64_t count = 1;
  std::int64_t step = 1;
  std::int64_t outer_count = 1;
  std::int64_t outer_step = 0;

  bool operator==(const Axis&) const = default;
};

struct Box {
  Axis b, h, q, kv;
};

// The free variables of a box: each counts from 0 to its number of values - 1.
enum class Variable : std::uint8_t { b, h, q, q_outer, kv, kv_outer };
inline constexpr std::size_t variables = 6;

using Counts = std::array<std::int64_t, variables>;

inline Counts counts_of(const Box& box) {
  return {box.b.count,       box.h.count,  box.q.count,
          box.q.outer_count, box.kv.count, box.kv.outer_count};
}

}  // namespace treadle::passes
