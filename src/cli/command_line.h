// The command line of the program.
#pragma once

namespace treadle::cli {

// Runs the subcommand that the command line names and returns 0. For a line that makes no sense it
// says why and returns CLI11's code, above 100. Throws what the subcommand throws.
int run_command_line(int argc, const char* const* argv);

}  // namespace treadle::cli
