// Cuts text into tokens.
//
// In: source text. Out: tokens that point into it. Read tokenize() first.
#include "ir/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace treadle::ir {
namespace {

constexpr std::size_t excerpt_length = 80;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// Longest first, so that "**" is not read as "*" "*".
constexpr std::array<std::string_view, 31> symbols{
    "**", "//", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+", "-", "*", "/", "%", "<",
    ">",  "=",  "!",  "&",  "|",  "^",  "~",  "(",  ")",  "[",  "]", ",", ";", ".", ":"};

// The length of the number that starts here: digits, a fraction, an exponent.
std::size_t number_length(std::string_view rest) {
  std::size_t i = 0;
  const auto digits = [&] {
    const std::size_t start = i;
    while (i < rest.size() && is_digit(rest[i])) ++i;
    return i > start;
  };
  digits();
  if (i < rest.size() && rest[i] == '.') {
    ++i;
    digits();
  }
  if (i < rest.size() && (rest[i] == 'e' || rest[i] == 'E')) {
    const std::size_t mantissa = i++;
    if (i < rest.size() && (rest[i] == '+' || rest[i] == '-')) ++i;
    if (!digits()) i = mantissa;  // "2else": the e belongs to a name, which the parser will refuse
  }
  return i;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string all;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\t') {
      all += ' ';
    } else if (byte < ' ' || byte >= 0x7f) {
      all += fmt::format("\\x{:02x}", byte);
    } else {
      all += c;
    }
  }
  return all;
}

std::string shortened(std::string_view text) {
  if (text.size() <= excerpt_length) return printable(text);
  return printable(text.substr(0, excerpt_length)) + "...";
}

void fail_at(std::string_view source, std::size_t position, const std::string& message) {
  position = std::min(position, source.size());
  const std::size_t before =
      position == 0 ? std::string_view::npos : source.rfind('\n', position - 1);
  const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
  const std::size_t end = std::min(source.find('\n', position), source.size());
  const std::string_view line = source.substr(begin, end - begin);
  const std::size_t at = position - begin;
  // Of a long line what is around the caret.
  const std::size_t last =
      std::min(line.size(), std::max(at, excerpt_length / 2) + excerpt_length / 2);
  const std::size_t first = last - std::min(last, excerpt_length);
  const std::string left = (first > 0 ? "..." : "") + printable(line.substr(first, at - first));
  const std::string right = printable(line.substr(at, last - at));
  base::fail("parse: {}\n  {}{}{}\n  {}^", message, left, right, last < line.size() ? "..." : "",
             std::string(left.size(), ' '));
}

std::vector<Token> tokenize(std::string_view source) {
  std::vector<Token> tokens;
  std::size_t at = 0;
  while (at < source.size()) {
    const std::string_view rest = source.substr(at);
    const char c = rest[0];
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      ++at;
      continue;
    }
    if (c == '#') {
      at = std::min(source.find('\n', at), source.size());
      continue;
    }
    Token token{.kind = TokenKind::symbol, .text = {}, .position = at};
    if (is_digit(c) || (c == '.' && rest.size() > 1 && is_digit(rest[1]))) {
      token.kind = TokenKind::number;
      token.text = rest.substr(0, number_length(rest));
    } else if (is_letter(c)) {
      const auto end =
          std::ranges::find_if_not(rest, [](char x) { return is_letter(x) || is_digit(x); });
      token.kind = TokenKind::name;
      token.text = rest.substr(0, static_cast<std::size_t>(end - rest.begin()));
    } else {
      const auto* symbol =
          std::ranges::find_if(symbols, [&](std::string_view s) { return rest.starts_with(s); });
      if (symbol == symbols.end()) fail_at(source, at, "a character that means nothing here");
      token.text = rest.substr(0, symbol->size());
    }
    at += token.text.size();
    tokens.push_back(token);
  }
  // The end is where the last token ends: a caret after trailing blanks and comments would point at
  // nothing.
  const std::size_t end = tokens.empty() ? 0 : tokens.back().position + tokens.back().text.size();
  tokens.push_back({.kind = TokenKind::end, .text = source.substr(end, 0), .position = end});
  return tokens;
}

}  // namespace treadle::ir
