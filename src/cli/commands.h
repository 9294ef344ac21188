// The subcommands. Each adds itself to the program and runs when the command line names it; what
// goes wrong is thrown as treadle::Error.
#pragma once

#include <CLI/CLI.hpp>

namespace treadle::cli {

void add_info(CLI::App& program);
void add_explain(CLI::App& program);
void add_mask(CLI::App& program);
void add_demo(CLI::App& program);
void add_bench(CLI::App& program);

}  // namespace treadle::cli
