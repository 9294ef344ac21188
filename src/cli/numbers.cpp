// In: text. Out: numbers, or an Error that shows the word that is none.
#include "cli/numbers.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"

namespace treadle::cli {
namespace {

constexpr std::size_t most_numbers = std::size_t{1} << 28;  // no typing mistake fills the memory

template <class T>
std::optional<T> number_from(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

template <class T>
constexpr const char* kind = std::same_as<T, double> ? "number" : "whole number";

}  // namespace

template <class T>
std::vector<T> numbers_from(std::string_view where, std::string_view text) {
  constexpr std::string_view separators = ", \t\r\n";
  std::vector<T> numbers;
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(separators), text.size()));
    if (text.empty()) return numbers;
    const std::string_view word = text.substr(0, text.find_first_of(separators));
    text.remove_prefix(word.size());

    const auto star = word.find('*');
    const std::optional<T> number = number_from<T>(word.substr(0, star));
    std::optional<std::int64_t> times = 1;
    if (star != std::string_view::npos) times = number_from<std::int64_t>(word.substr(star + 1));
    if (!number || !times || *times < 0) {
      base::fail("{}: \"{}\" is not a {}, nor one with how often it stands there, as in 7*100",
                 where, word, kind<T>);
    }
    if (static_cast<std::size_t>(*times) > most_numbers - numbers.size()) {
      base::fail("{}: more than {} numbers", where, most_numbers);
    }
    numbers.insert(numbers.end(), static_cast<std::size_t>(*times), *number);
  }
}

template std::vector<std::int64_t> numbers_from(std::string_view where, std::string_view text);
template std::vector<double> numbers_from(std::string_view where, std::string_view text);

std::int64_t integer_from(std::string_view where, std::string_view text) {
  const std::optional<std::int64_t> number = number_from<std::int64_t>(text);
  if (!number) base::fail("{}: \"{}\" is not a whole number", where, text);
  return *number;
}

}  // namespace treadle::cli
