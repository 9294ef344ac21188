// Every mistake in text: what is said, and where the caret points.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ir/parse.h"
#include "treadle/error.h"

namespace treadle::ir {
namespace {

using testing::ThrowsMessage;

const std::vector<Slot> parse_error_captures{{"slopes", DType::f32, 1}, {"bias", DType::f32, 2}};

void expect_error(const std::string& text, const std::string& message) {
  EXPECT_THAT([&] { parse(text, parse_error_captures); }, ThrowsMessage<Error>(message)) << text;
}

TEST(ParseError, UnknownNames) {
  expect_error("score + slops[h]",
               "parse: unknown name \"slops\"; known are score, b, h, q, kv, bias, slopes\n"
               "  score + slops[h]\n"
               "          ^");
  expect_error("t = q; T",
               "parse: unknown name \"T\"; known are score, b, h, q, kv, bias, slopes, t\n"
               "  t = q; T\n"
               "         ^");
  expect_error("score * gelu(score)",
               "parse: unknown function \"gelu\"\n"
               "  score * gelu(score)\n"
               "          ^");
  expect_error("grad",
               "parse: unknown name \"grad\"; known are score, b, h, q, kv, bias, slopes\n"
               "  grad\n"
               "  ^");
}

TEST(ParseError, AFunctionWithoutBrackets) {
  expect_error("tanh score",
               "parse: tanh is a function; \"(\" is missing\n"
               "  tanh score\n"
               "       ^");
}

TEST(ParseError, ChainedComparisons) {
  expect_error("0 <= q - kv < 8",
               "parse: comparisons do not chain; write (a < b) && (b < c)\n"
               "  0 <= q - kv < 8\n"
               "              ^");
}

TEST(ParseError, MissingBrackets) {
  expect_error("tanh(score",
               "parse: \")\" is missing, the text ends here\n"
               "  tanh(score\n"
               "            ^");
  expect_error("slopes[h * 2) + 1",
               "parse: \"]\" is missing, \")\" stands here\n"
               "  slopes[h * 2) + 1\n"
               "              ^");
  expect_error("(q + kv; score",
               "parse: \")\" is missing, \";\" stands here\n"
               "  (q + kv; score\n"
               "         ^");
  expect_error("t = q\nt + 1",
               "parse: \";\" is missing, \"t\" stands here\n"
               "  t + 1\n"
               "  ^");
}

TEST(ParseError, SomethingTooMuch) {
  expect_error("score score",
               "parse: \"score\" was not expected here\n"
               "  score score\n"
               "        ^");
  expect_error("score)",
               "parse: \")\" was not expected here\n"
               "  score)\n"
               "       ^");
  expect_error("score[q]",
               "parse: \"[\" was not expected here\n"
               "  score[q]\n"
               "       ^");
  expect_error("slopes[h][q]",
               "parse: \"[\" was not expected here\n"
               "  slopes[h][q]\n"
               "           ^");
  expect_error("q = 1",
               "parse: \"q\" already means something\n"
               "  q = 1\n"
               "  ^");
  expect_error("1 = q",
               "parse: \"=\" was not expected here\n"
               "  1 = q\n"
               "    ^");
}

TEST(ParseError, AValueIsMissing) {
  expect_error("",
               "parse: the text ends where a value is due\n"
               "  \n"
               "  ^");
  expect_error("score + # more to come: \xC3\xA9\n\n",
               "parse: the text ends where a value is due\n"
               "  score + # more to come: \\xc3\\xa9\n"
               "         ^");
  expect_error("tanh(,)",
               "parse: \",\" stands where a value is due\n"
               "  tanh(,)\n"
               "       ^");
  expect_error("min(q,)",
               "parse: \")\" stands where a value is due\n"
               "  min(q,)\n"
               "        ^");
  expect_error("q and or kv",
               "parse: \"or\" stands where a value is due\n"
               "  q and or kv\n"
               "        ^");
}

TEST(ParseError, SignsAndNot) {
  expect_error("q < not kv",
               "parse: \"not\" needs brackets here\n"
               "  q < not kv\n"
               "      ^");
}

TEST(ParseError, NumbersThatDoNotFit) {
  expect_error("q + 9223372036854775808",
               "parse: the integer does not fit 64 bits\n"
               "  q + 9223372036854775808\n"
               "      ^");
  expect_error("-9223372036854775809",
               "parse: the integer does not fit 64 bits\n"
               "  -9223372036854775809\n"
               "   ^");
  expect_error("99999999999999999999999",
               "parse: the integer does not fit 64 bits\n"
               "  99999999999999999999999\n"
               "  ^");
  expect_error("score * 1e400",
               "parse: the number does not fit a double; write inf or 0.0\n"
               "  score * 1e400\n"
               "          ^");
  expect_error("1e-400",
               "parse: the number does not fit a double; write inf or 0.0\n"
               "  1e-400\n"
               "  ^");
}

TEST(ParseError, NumbersThatAreNone) {
  expect_error("2q",
               "parse: a number runs into a name\n"
               "  2q\n"
               "  ^");
  expect_error("0x10",
               "parse: a number runs into a name\n"
               "  0x10\n"
               "  ^");
  expect_error("1e",
               "parse: a number runs into a name\n"
               "  1e\n"
               "  ^");
  expect_error("1.2.3",
               "parse: \".3\" was not expected here\n"
               "  1.2.3\n"
               "     ^");
}

TEST(ParseError, BadCharacters) {
  expect_error("score $ 2",
               "parse: a character that means nothing here\n"
               "  score $ 2\n"
               "        ^");
  expect_error("score \xC3\x97 2",
               "parse: a character that means nothing here\n"
               "  score \\xc3\\x97 2\n"
               "        ^");
  expect_error("q\n+ @",
               "parse: a character that means nothing here\n"
               "  + @\n"
               "    ^");
  // Control characters would spoil the caret, or the terminal.
  expect_error("q\t+\x1B[31m",
               "parse: a character that means nothing here\n"
               "  q +\\x1b[31m\n"
               "     ^");
  expect_error(std::string("q\0kv", 4),
               "parse: a character that means nothing here\n"
               "  q\\x00kv\n"
               "   ^");
}

// Of a long line, of long names and of many names a message has a part.
TEST(ParseError, LongTextsAreCut) {
  std::string ones = "1";
  for (int i = 0; i < 60; ++i) ones += "+1";
  expect_error(ones + " $ " + ones,
               "parse: a character that means nothing here\n"
               "  ..." +
                   ones.substr(ones.size() - 39) + " $ " + ones.substr(0, 38) + "...\n" + "  " +
                   std::string(3 + 40, ' ') + "^");
  expect_error("$" + ones,
               "parse: a character that means nothing here\n"
               "  $" +
                   ones.substr(0, 79) + "...\n  ^");
  expect_error(ones + "$",
               "parse: a character that means nothing here\n"
               "  ..." +
                   ones.substr(ones.size() - 79) + "$\n  " + std::string(3 + 79, ' ') + "^");
  std::string definitions;
  for (int i = 0; i < 1000; ++i) definitions += fmt::format("x{} = q;", i);
  for (const std::string& text :
       {definitions + std::string(1000000, 'a'), std::string(1000000, 'a') + "(", "q = " + ones,
        std::string(1000000, '\x01'), std::string(1000000, '(')}) {
    try {
      parse(text, parse_error_captures);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_LT(std::string_view(error.what()).size(), 1500u) << error.what();
    }
  }
}

TEST(ParseError, NumbersOfOperands) {
  expect_error("1 + exp(score, 2)",
               "parse: exp: 2 operands given, it takes 1\n"
               "  1 + exp(score, 2)\n"
               "      ^");
  expect_error("where()",
               "parse: where: 0 operands given, it takes 3\n"
               "  where()\n"
               "  ^");
}

TEST(ParseError, Types) {
  expect_error("score % 2",
               "parse: mod: got a float; it takes integers\n"
               "  score % 2\n"
               "        ^");
  expect_error("q && kv",
               "parse: logical_and: got an int; it takes bools\n"
               "  q && kv\n"
               "    ^");
  expect_error("1 + ~score",
               "parse: bit_not: got a float; it takes integers\n"
               "  1 + ~score\n"
               "      ^");
  expect_error("where(q, 1, 2)",
               "parse: where: got an int; it takes a bool as its first operand\n"
               "  where(q, 1, 2)\n"
               "  ^");
  expect_error("q // 0",
               "parse: floor_div: division by the constant 0\n"
               "  q // 0\n"
               "    ^");
}

TEST(ParseError, Loads) {
  expect_error("score + bias[q]",
               "parse: bias: 1 index given, the buffer has rank 2\n"
               "  score + bias[q]\n"
               "          ^");
  expect_error("slopes",
               "parse: slopes: 0 indices given, the buffer has rank 1\n"
               "  slopes\n"
               "  ^");
  expect_error("slopes[]",
               "parse: slopes: 0 indices given, the buffer has rank 1\n"
               "  slopes[]\n"
               "  ^");
  expect_error("bias[q][b, h]",
               "parse: bias: 3 indices given, the buffer has rank 2\n"
               "  bias[q][b, h]\n"
               "  ^");
  expect_error("slopes[score]",
               "parse: slopes: index 0 is a float; indices are integers\n"
               "  slopes[score]\n"
               "  ^");
}

TEST(ParseError, Definitions) {
  expect_error("t = 1; t = 2; t",
               "parse: \"t\" is defined twice\n"
               "  t = 1; t = 2; t\n"
               "         ^");
  for (const char* name : {"score", "tanh", "slopes", "inf", "and"}) {
    expect_error(
        std::string(name) + " = 1; q",
        "parse: \"" + std::string(name) + "\" already means something\n  " + name + " = 1; q\n  ^");
  }
  expect_error("t = t + 1; t",
               "parse: unknown name \"t\"; known are score, b, h, q, kv, bias, slopes\n"
               "  t = t + 1; t\n"
               "      ^");
}

TEST(ParseError, TooDeep) {
  const std::string message =
      "parse: nested deeper than 200 levels; name parts of it: t = ...;\n  ";
  for (const std::string open : {"(", "-", "exp(", "not ", "2 ** "}) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += open;
    expect_error(text, message + "..." + text.substr(200 * open.size() - 40, 80) + "...\n  " +
                           std::string(3 + 40, ' ') + "^");
  }
}

TEST(ParseError, CapturesThatClash) {
  const auto parse_with = [](std::vector<Slot> slots) { return [slots] { parse("q", slots); }; };
  EXPECT_THAT(parse_with({{"a", DType::f32, 1}, {"a", DType::f32, 1}}),
              ThrowsMessage<Error>("parse: two captures are called \"a\"; one name is one buffer"));
  EXPECT_THAT(
      parse_with({{"exp", DType::f32, 1}}),
      ThrowsMessage<Error>("capture \"exp\": the name already means something in the text form"));
  EXPECT_THAT(parse_with({{"a b", DType::f32, 1}}),
              ThrowsMessage<Error>("capture \"a b\": a name is a letter or underscore followed by "
                                   "letters, digits, underscores"));
}

}  // namespace
}  // namespace treadle::ir
