// In: a joint graph; out: its lines.
#include "ir/joint.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/builder.h"
#include "ir/print.h"

namespace treadle::ir {

std::string to_text(const Joint& joint) {
  const Graph& graph = joint.graph;
  // One output alone, as text whose definitions and expression are joined on one line.
  const auto text = [&](int output) {
    Builder make;
    std::vector<NodeId> same(static_cast<std::size_t>(graph.size()));
    for (NodeId id = 0; id < graph.size(); ++id) same[static_cast<std::size_t>(id)] = make.copy(graph, id, same);
    std::string line = to_text(make.finish({same[static_cast<std::size_t>(graph.outputs()[static_cast<std::size_t>(output)])]}));
    std::ranges::replace(line, '\n', ' ');
    return line;
  };
  std::string lines = fmt::format("dscore = {}\n", text(0));
  for (const Contribution& c : joint.contributions) {
    std::string index;
    for (const int i : c.index) index += (index.empty() ? "" : ", ") + text(i);
    const std::string when = text(c.when);
    lines += fmt::format("{}{} += {}{}\n", c.slot.name, index.empty() ? "" : "[" + index + "]", text(c.value),
                         when == "true" ? "" : "   where " + when);
  }
  return lines;
}

}  // namespace treadle::ir
