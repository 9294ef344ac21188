// A look inside: TREADLE_DUMP=graph,layout,plan,ir,asm,time prints stages to stderr.
//
//   if (dump_wanted(Dump::graph)) dump(Dump::graph, "score mod", ir::to_text(graph));
//
//   == graph: score mod
//   score * gate[h]
#pragma once

#include <string_view>

namespace treadle::base {

enum class Dump { graph, layout, plan, ir, assembly, time };

// The variable is read once per process. An unknown name in it is the user's error, each time.
bool dump_wanted(Dump what);

// Prints, asked for or not, as one piece also when several threads do.
void dump(Dump what, std::string_view title, std::string_view text);

}  // namespace treadle::base
