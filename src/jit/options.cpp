// In: the environment. Out: EngineOptions.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "jit/engine.h"

namespace treadle::jit {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string cache_folder() {
  if (const char* given = std::getenv("TREADLE_CACHE_DIR")) return given;
  // XDG: a path that is not absolute is to be ignored.
  if (const auto caches = variable("XDG_CACHE_HOME"); caches.starts_with('/')) {
    return std::string(caches) + "/treadle";
  }
  if (const auto home = variable("HOME"); home.starts_with('/')) {
    return std::string(home) + "/.cache/treadle";
  }
  return {};
}

// Calls `use` for each word of a list with commas and spaces.
template <class F>
void for_each_word(std::string_view list, F&& use) {
  constexpr std::string_view between = ", ";
  while (true) {
    list.remove_prefix(std::min(list.find_first_not_of(between), list.size()));
    if (list.empty()) return;
    const std::string_view word = list.substr(0, list.find_first_of(between));
    use(word);
    list.remove_prefix(word.size());
  }
}

}  // namespace

EngineOptions EngineOptions::from_environment() {
  EngineOptions options{.cache_folder = jit::cache_folder()};
  for_each_word(variable("TREADLE_JIT"), [&](std::string_view word) {
    if (word == "perf") {
      options.perf = true;
    } else if (word == "gdb") {
      options.gdb = true;
    } else {
      base::fail("TREADLE_JIT: unknown name '{}'; known are perf, gdb", word);
    }
  });
  for_each_word(variable("TREADLE_SANITIZE"), [&](std::string_view word) {
    if (word != "address") {
      base::fail("TREADLE_SANITIZE: unknown name '{}'; known is address", word);
    }
    options.address_sanitizer = true;
  });
  return options;
}

}  // namespace treadle::jit
