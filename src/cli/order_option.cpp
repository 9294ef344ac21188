// Reads query orders from the command line.
//
// In: text. Out: an order, whose numbers Tiles will check.
#include "cli/order_option.h"

#include <fmt/format.h>

#include "base/error.h"
#include "cli/numbers.h"

namespace treadle::cli {

using Kind = layout::Order::Kind;

layout::Order order_from(std::string_view command, const std::string& text) {
  const std::string where = fmt::format("{}: --order \"{}\"", command, text);
  const auto colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (text == "identity") return {};
  if (kind == "residue") return {.kind = Kind::residue, .modulus = integer_from(where, rest)};
  if (kind == "blocks") return {.kind = Kind::blocks, .modulus = integer_from(where, rest)};
  const auto second = rest.find(':');
  const auto x = rest.find('x');
  if (kind == "rect" && second != std::string::npos && x != std::string::npos && second < x) {
    return {.kind = Kind::rectangle,
            .modulus = integer_from(where, rest.substr(0, second)),
            .rows = integer_from(where, rest.substr(second + 1, x - second - 1)),
            .columns = integer_from(where, rest.substr(x + 1))};
  }
  base::fail("{} is not an order; known are {}", where, order_forms);
}

}  // namespace treadle::cli
