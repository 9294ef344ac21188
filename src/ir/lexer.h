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

// For messages: bytes that are no printable ASCII as \x1b, tabs as blanks; and a long text cut.
std::string printable(std::string_view text);
std::string shortened(std::string_view text);

// Throws treadle::Error: the message, the line of the source, printable, with a caret under the
// position. Of a long line only what is around it.
[[noreturn]] void fail_at(std::string_view source, std::size_t position,
                          const std::string& message);

}  // namespace treadle::ir
