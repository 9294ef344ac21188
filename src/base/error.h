// The two ways to stop.
//
//   fail("attention: queries have {} heads, keys {}", 12, 8);   // the caller's mistake
//   internal_error("merge: {} parts, {} rows", parts, rows);    // only our own can cause it
//
// The first throws treadle::Error, the second InternalError. Both take {fmt} format strings,
// checked when compiled. A message names the call, the numbers seen and the rule.
#pragma once

#include <fmt/core.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "treadle/error.h"

namespace treadle::base {

// Says "this is a bug in Treadle" and where it was noticed. No caller should have to catch it.
class InternalError : public std::logic_error {
 public:
  InternalError(const std::string& message, const std::source_location& where);
};

// A format string that remembers the line it was written on.
template <class... Args>
struct LocatedFormat {
  template <class Text>
    requires std::is_convertible_v<const Text&, std::string_view>
  consteval LocatedFormat(const Text& format,  // NOLINT: implicit, so that a literal can be passed
                          std::source_location here = std::source_location::current())
      : text(format), where(here) {}

  fmt::format_string<Args...> text;
  std::source_location where;
};

[[noreturn]] void throw_error(const std::string& message);
[[noreturn]] void throw_mod_error(const std::string& message);
[[noreturn]] void throw_internal_error(const std::string& message,
                                       const std::source_location& where);

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw_error(fmt::format(text, std::forward<Args>(args)...));
}

// The caller's mistake, too: his mod's, at a pair.
template <class... Args>
[[noreturn]] void fail_mod(fmt::format_string<Args...> text, Args&&... args) {
  throw_mod_error(fmt::format(text, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void internal_error(std::type_identity_t<LocatedFormat<Args...>> text,
                                 Args&&... args) {
  throw_internal_error(fmt::format(text.text, std::forward<Args>(args)...), text.where);
}

}  // namespace treadle::base
