// Throws the exceptions of base/error.h.
//
// In: a finished message. Out: an exception, never a value. The throws stand here, out of line, so
// that the many places that call fail() stay small.
#include "base/error.h"

#include <string_view>

namespace treadle::base {
namespace {

// From "src/" on: a message must not depend on where the sources were built.
std::string_view short_path(std::string_view path) {
  const auto start = path.rfind("src/");
  return start == std::string_view::npos ? path : path.substr(start);
}

}  // namespace

InternalError::InternalError(const std::string& message, const std::source_location& where)
    : std::logic_error(fmt::format("{} (a bug in Treadle, noticed at {}:{})", message,
                                   short_path(where.file_name()), where.line())) {}

void throw_error(const std::string& message) { throw Error(message); }

void throw_mod_error(const std::string& message) { throw ModError(message); }

void throw_internal_error(const std::string& message, const std::source_location& where) {
  throw InternalError(message, where);
}

}  // namespace treadle::base
