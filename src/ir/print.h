// Graphs as text that ir/parse.h reads back to the identical graph.
//
//   to_text(graph)  ->  "where(q >= kv, score + slopes[h] * float(kv - q), -inf)"
//
// A value that is used more than once, or sits deep, gets a name: "t0 = tanh(score); t0 * t0".
// Several outputs are separated by commas. Conversions are written out, so the text shows what is
// computed.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace treadle::ir {

std::string to_text(const Graph& graph);

// The same in parts: "t0 = tanh(score);\n" and so on, and one expression per output.
struct Printed {
  std::string definitions;
  std::vector<std::string> outputs;
};
Printed print(const Graph& graph);

// One line per node with its type, for internal errors: "%3 float = add %1 %2". Illegal graphs are
// printed as well.
std::string to_listing(const Graph& graph);

}  // namespace treadle::ir
