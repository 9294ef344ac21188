// Text cut into tokens, and the error that points at one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace treadle::ir {

enum class TokenKind { number, name, symbol, end };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;     // a part of the source
  std::size_t position = 0;  // where it begins in the source
};

// The last token is always `end`. Spaces, line ends and comments from # to the end of a line
// separate tokens.
std::vector<Token> tokenize(std::string_view source);

// Throws treadle::Error: the message, the line of the source and a caret under the position.
[[noreturn]] void fail_at(std::string_view source, std::size_t position,
                          const std::string& message);

}  // namespace treadle::ir
