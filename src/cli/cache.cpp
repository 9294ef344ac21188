// treadle cache: the kernels on disk, how much they take, and how to be rid of them.
#include <fmt/format.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/table.h"
#include "jit/engine.h"
#include "jit/prune.h"

namespace treadle::cli {
namespace {

// 1536 -> "1.5 KiB"
std::string size_text(std::int64_t bytes) {
  if (bytes < 1 << 10) return fmt::format("{} B", bytes);
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  constexpr std::string_view units = "KMGT";
  for (size /= 1024; size >= 1024 && unit + 1 < units.size(); ++unit) size /= 1024;
  return fmt::format("{:.1f} {}iB", size, units[unit]);
}

// What a reader needs to know if kernels do not appear there.
std::string state_of(const jit::EngineOptions& options, const jit::CacheContents& contents) {
  if (options.cache_folder.empty()) return "off: no folder is given, and no home";
  if (options.build.empty()) return "off: this build of Treadle has no build id";
  if (contents.problem == "it is not there") return "empty: it is made when first written to";
  if (!contents.problem.empty()) return "off: " + contents.problem;
  return contents.writable ? "in use" : "only read: we may not write it";
}

}  // namespace

void cache(const CacheRequest& request) {
  const auto options = jit::EngineOptions::from_environment();
  const std::string& folder = options.cache_folder;
  std::int64_t removed = 0;
  if (request.clear || request.prune) {
    const jit::CacheContents before = jit::contents_of(folder);
    if (!before.writable && before.problem != "it is not there") {
      base::fail("cache: \"{}\" stays as it is: {}", folder,
                 before.problem.empty() ? "we may not write it" : before.problem);
    }
    removed = request.clear ? jit::clear(folder) : jit::prune(folder, options.cache_limits);
  }
  const jit::CacheContents contents = jit::contents_of(folder);
  Table table({"folder", "files", {"bytes", "size"}, "limit", "removed", "state"});
  table.add({folder,
             contents.files,
             {contents.bytes, size_text(contents.bytes)},
             {options.cache_limits.bytes, size_text(options.cache_limits.bytes)},
             request.clear || request.prune ? Cell(removed) : Cell(),
             state_of(options, contents)});
  print(table, request.json ? Format::json : Format::text);
}

}  // namespace treadle::cli
