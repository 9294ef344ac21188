// In: name:dtype[:shape]=values. Out: a Capture, or an Error that says which part is wrong.
#include "cli/capture_values.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>

#include "base/element.h"
#include "base/error.h"
#include "cli/capture_option.h"
#include "cli/numbers.h"

namespace treadle::cli {
namespace {

std::string content_of(const std::string& where, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) base::fail("{}: cannot read \"{}\"", where, path);
  return text;
}

// "2x3" -> {2, 3}
Dims shape_from(const std::string& where, std::string_view text) {
  Dims shape;
  while (!text.empty()) {
    const auto x = text.find('x');
    shape.push_back(integer_from(where, text.substr(0, x)));
    text.remove_prefix(x == std::string_view::npos ? text.size() : x + 1);
  }
  return shape;
}

template <class T>
Tensor filled(const std::string& where, DType dtype, const std::optional<Dims>& shape,
              std::string_view values) {
  const std::vector<T> numbers = numbers_from<T>(where, values);
  const auto count = static_cast<std::int64_t>(numbers.size());
  const Dims fitting = shape ? *shape : count == 1 ? Dims{} : Dims{count};
  if (count_of(fitting) != count) {
    base::fail("{}: {} values for the shape {}", where, count, to_string(fitting));
  }
  Tensor tensor(dtype, fitting);
  for (std::int64_t i = 0; i < count; ++i) {
    const T number = numbers[static_cast<std::size_t>(i)];
    if constexpr (std::same_as<T, double>) {
      base::store_double(tensor.view().data(), dtype, i, number);
    } else {
      base::store_int(tensor.view().data(), dtype, i, number);
    }
  }
  return tensor;
}

Capture capture_from(const std::string& command, const std::string& text) {
  const std::string where = fmt::format("{}: --capture \"{}\"", command, text);
  const auto equals = text.find('=');
  const std::string_view left = std::string_view(text).substr(0, equals);
  const auto colon = left.find(':');
  if (equals == std::string::npos || colon == std::string_view::npos) {
    base::fail("{} is not name:dtype=values or name:dtype:shape=values, as in ids:i32=0,0,1,1",
               where);
  }
  std::string_view type_name = left.substr(colon + 1);
  std::optional<Dims> shape;
  if (const auto second = type_name.find(':'); second != std::string_view::npos) {
    shape = shape_from(where, type_name.substr(second + 1));
    type_name = type_name.substr(0, second);
  }
  const DType dtype = dtype_from(where, type_name);
  std::string values = text.substr(equals + 1);
  if (values.starts_with('@')) values = content_of(where, values.substr(1));
  Tensor tensor = is_float(dtype) ? filled<double>(where, dtype, shape, values)
                                  : filled<std::int64_t>(where, dtype, shape, values);
  return {std::string(left.substr(0, colon)), std::make_shared<const Tensor>(std::move(tensor))};
}

}  // namespace

std::vector<Capture> captures_with_values(const std::string& command,
                                          const std::vector<std::string>& texts) {
  std::vector<Capture> captures;
  for (const std::string& text : texts) {
    add_capture(command, captures, capture_from(command, text));
  }
  return captures;
}

std::vector<Capture> captures_perhaps_with_values(const std::string& command,
                                                  const std::vector<std::string>& texts) {
  std::vector<Capture> captures;
  for (const std::string& text : texts) {
    const bool valued = text.find('=') != std::string::npos;
    add_capture(command, captures,
                valued ? capture_from(command, text) : captures_from({text}).front());
  }
  return captures;
}

}  // namespace treadle::cli
