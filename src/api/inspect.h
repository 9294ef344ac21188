// Mods as text, the pairs and blocks that they show, and what this process has made.
//
//   simplified("q >= kv && true", {})          "q >= kv"
//   visible_pairs("q >= kv", {}, result);      [batch, heads, queries, keys] of bool
//   operations()                               the rows of src/ir/ops.def
//
// This and the public headers are all that the Python module knows of Treadle.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/parallel.h"
#include "treadle/capture.h"
#include "treadle/view.h"

namespace treadle::api {

// An operation of the text form. What the columns mean is in src/ir/ops.def.
struct Operation {
  std::string_view name, infix;
  int arity = 0;
  std::string_view rule;  // "real", "comparison", ...: a name of ir::Rule
};

// All that have a name, in the order of the table.
std::vector<Operation> operations();

// The text of a mod after simplification.
std::string simplified(std::string_view mod, const std::vector<Capture>& captures);

// Names of the captures that a mod reads.
std::vector<std::string> captures_read(std::string_view mod, const std::vector<Capture>& captures);

// Writes which pairs a mask shows into a result [batch, heads, queries, keys] of bool. Throws
// treadle::ModError if a pair reads outside of a capture.
void visible_pairs(std::string_view mask, const std::vector<Capture>& captures, const View& result);

// The same for a score mod: true where it does not turn a score of 0 into -inf.
void unmasked_pairs(std::string_view score_mod, const std::vector<Capture>& captures,
                    const View& result);

// A grid of blocks over queries and keys. Blocks at the end may stick out over the lengths.
struct BlockGrid {
  std::int64_t queries = 0, keys = 0;
  std::int64_t query_block = 1, key_block = 1;
};

// Writes what the blocks of a grid hold into a result [batch, heads, rows, columns] of u8: 0 no
// visible pair, 1 some, 2 only visible ones. A block that sticks out is 1 at most.
void block_kinds(std::string_view mask, const std::vector<Capture>& captures, const BlockGrid& grid,
                 const View& result, const base::Workers& workers);

// Kernels that this process has compiled or loaded from disk so far.
std::int64_t kernels_made();

// The machine that kernels are made for: "haswell".
std::string target_name();

}  // namespace treadle::api
