// treadle info: what to write into a bug report.
#include "cli/commands.h"
#include "cli/libraries.h"
#include "cli/machine.h"
#include "cli/table.h"
#include "plan/target.h"
#include "treadle/version.h"

namespace treadle::cli {
namespace {

#if defined(__clang__)
constexpr const char* compiler = "Clang " __clang_version__;
#elif defined(__GNUC__)
constexpr const char* compiler = "GCC " __VERSION__;
#else
constexpr const char* compiler = "unknown";
#endif

}  // namespace

void info(const InfoRequest& request) {
  const Machine machine = this_machine();
  Table table({"about", "name", "value"});
  table.add({"treadle", "version", version()});
  table.add({"treadle", "compiler", compiler});
  table.add({"target", "architecture", machine.architecture});
  table.add({"target", "cpu", machine.cpu});
  table.add({"target", "vector extensions", machine.vector_extensions});
  table.add({"target", "cores", machine.cores});
  table.add({"target", "kernels", to_text(plan::host_target())});
  for (const Library& library : libraries()) {
    table.add({"library", library.name, library.version});
  }
  print(table, request.json ? Format::json : Format::text);
}

}  // namespace treadle::cli
