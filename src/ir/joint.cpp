// Prints joint graphs.
#include "ir/joint.h"

#include <fmt/format.h>

#include "ir/print.h"

namespace treadle::ir {

std::string to_text(const Joint& joint) {
  const Printed printed = print(joint.graph);
  const auto text = [&](int output) -> const std::string& {
    return printed.outputs[static_cast<std::size_t>(output)];
  };
  std::string lines = fmt::format("{}dscore = {}\n", printed.definitions, text(0));
  for (const Contribution& c : joint.contributions) {
    std::string index;
    for (const int i : c.index) index += (index.empty() ? "" : ", ") + text(i);
    lines += fmt::format("{}{} += {}{}\n", c.slot.name, index.empty() ? "" : "[" + index + "]",
                         text(c.value), text(c.when) == "true" ? "" : "   where " + text(c.when));
  }
  return lines;
}

}  // namespace treadle::ir
