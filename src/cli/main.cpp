// The program `treadle`. Enters: a command line; leaves: what the subcommand prints, and an exit
// code: 0 for success, 1 for a treadle::Error, 2 for a bug of ours, CLI11's (above 100) for a
// command line that makes no sense.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>

#include "base/dump.h"
#include "cli/commands.h"
#include "treadle/error.h"
#include "treadle/version.h"

namespace treadle::cli {
namespace {

constexpr const char* examples = R"text(Examples:
  treadle info --json
  treadle explain "score + slopes[h] * (kv - q)" --mask "q >= kv" --capture slopes:f32:1
  treadle mask "q >= kv && q - kv < 256" --q 1024 -o window.png
  treadle demo --length 256 --threads 1
  treadle bench --case 'layout-*'

`treadle SUBCOMMAND --help` tells more.
TREADLE_DUMP=graph prints what each stage of the compiler made.)text";

// Throws CLI::Error (also for --help) and whatever the subcommand throws.
void parse_and_run(CLI::App& program, int argc, const char* const* argv) {
  program.set_version_flag("--version", fmt::format("treadle {}", version()));
  program.footer(examples);
  add_info(program);
  add_explain(program);
  add_mask(program);
  add_demo(program);
  add_bench(program);
  // A wrong name in TREADLE_DUMP is an error even where no stage would look at it.
  program.parse_complete_callback([] { (void)base::dump_wanted(base::Dump::graph); });
  program.parse(argc, argv);
  // Asked only now: require_subcommand() would call a misspelt subcommand a missing one.
  if (program.get_subcommands().empty()) throw CLI::RequiredError("A subcommand");
}

int run(int argc, const char* const* argv) {
  CLI::App program("Treadle, a compiler for attention with your own score and mask.", "treadle");
  try {
    parse_and_run(program, argc, argv);
    return 0;
  } catch (const CLI::Error& error) {
    return program.exit(error);
  } catch (const Error& error) {
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

}  // namespace
}  // namespace treadle::cli

int main(int argc, char** argv) { return treadle::cli::run(argc, argv); }
