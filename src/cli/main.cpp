// The program `treadle`. In: a command line. Out: what the subcommand prints, and an exit
// code: 0 for success, 1 for a treadle::Error, 2 for a bug of ours, CLI11's (above 100) for a
// command line that makes no sense.
#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <new>

#include "cli/command_line.h"
#include "treadle/error.h"

int main(int argc, char** argv) {
  try {
    return treadle::cli::run_command_line(argc, argv);
  } catch (const treadle::Error& error) {
    fmt::print(stderr, "treadle: {}\n", error.what());
    return 1;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "treadle: there is not enough memory for this\n");
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "treadle: {}\n", error.what());
    return 2;
  }
}
