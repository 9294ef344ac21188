// In: the environment. Out: EngineOptions.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/environment.h"
#include "base/error.h"
#include "jit/engine.h"

namespace treadle::jit {
namespace {

std::string cache_folder() {
  if (const auto given = base::variable("TREADLE_CACHE_DIR")) {
    if (!given->empty() && !given->starts_with('/')) {
      base::fail(
          "TREADLE_CACHE_DIR: '{}' is not an absolute path; a relative one would be another folder "
          "wherever the program is started",
          *given);
    }
    return *given;
  }
  // XDG: a path that is not absolute is to be ignored.
  const std::string caches = base::variable("XDG_CACHE_HOME").value_or("");
  if (caches.starts_with('/')) return caches + "/treadle";
  const std::string home = base::variable("HOME").value_or("");
  if (home.starts_with('/')) return home + "/.cache/treadle";
  return {};
}

// "256M" -> 268435456
std::int64_t cache_bytes(std::string_view text) {
  std::string_view digits = text;
  int shift = 0;
  for (const auto& [letter, bits] : {std::pair('K', 10), std::pair('M', 20), std::pair('G', 30)}) {
    if (!text.ends_with(letter)) continue;
    digits.remove_suffix(1);
    shift = bits;
  }
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  if (error != std::errc() || end != digits.data() + digits.size() || number < 1 ||
      number > most >> shift) {
    base::fail(
        "TREADLE_CACHE_SIZE: '{}' is not a size; give a number of bytes above 0, or of K, M or G",
        text);
  }
  return number << shift;
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
  if (const auto size = base::variable("TREADLE_CACHE_SIZE")) {
    options.cache_limits.bytes = cache_bytes(*size);
  }
  for_each_word(base::variable("TREADLE_JIT").value_or(""), [&](std::string_view word) {
    if (word == "perf") {
      options.perf = true;
    } else if (word == "gdb") {
      options.gdb = true;
    } else {
      base::fail("TREADLE_JIT: unknown name '{}'; known are perf, gdb", word);
    }
  });
  for_each_word(base::variable("TREADLE_SANITIZE").value_or(""), [&](std::string_view word) {
    if (word != "address") {
      base::fail("TREADLE_SANITIZE: unknown name '{}'; known is address", word);
    }
    options.address_sanitizer = true;
  });
  return options;
}

}  // namespace treadle::jit
