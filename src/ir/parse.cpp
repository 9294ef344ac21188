// Parses text by precedence climbing.
//
// In: text and the captures it may name. Out: a graph. Read expression() first.
#include "ir/parse.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <map>
#include <optional>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/lexer.h"
#include "ir/precedence.h"

namespace treadle::ir {
namespace {

// Deeper nesting is refused rather than left to the stack.
constexpr int deepest = 200;

class Parser {
 public:
  Parser(std::string_view source, std::span<const Slot> captures, Names names)
      : source_(source), tokens_(tokenize(source)), names_(names) {
    for (const Slot& slot : captures) {
      check_slot_name(slot.name);
      if (!captures_.emplace(slot.name, slot).second) {
        base::fail("parse: two captures are called \"{}\"; one name is one buffer", slot.name);
      }
    }
  }

  // program = { name "=" expression ";" } expression { "," expression }
  Graph program() {
    while (peek().kind == TokenKind::name && peek(1).text == "=") definition();
    std::vector<NodeId> outputs{expression(Binding::anything)};
    while (accept(",")) outputs.push_back(expression(Binding::anything));
    if (peek().kind != TokenKind::end)
      fail_here(fmt::format("\"{}\" was not expected here", shortened(peek().text)));
    return make_.finish(outputs);
  }

 private:
  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  bool at_symbol(std::string_view text) const {
    return peek().kind == TokenKind::symbol && peek().text == text;
  }
  bool at_word(std::string_view text) const {
    return peek().kind == TokenKind::name && peek().text == text;
  }
  bool accept(std::string_view symbol) {
    if (!at_symbol(symbol)) return false;
    ++at_;
    return true;
  }
  [[noreturn]] void fail_here(const std::string& message) const {
    fail_at(source_, peek().position, message);
  }
  void expect(std::string_view symbol) {
    if (accept(symbol)) return;
    const std::string seen = peek().kind == TokenKind::end
                                 ? "the text ends"
                                 : fmt::format("\"{}\" stands", shortened(peek().text));
    fail_here(fmt::format("\"{}\" is missing, {} here", symbol, seen));
  }

  void definition() {
    const Token name = peek();
    const std::string text(name.text);
    if (find_op(text) || find_input(text) || captures_.contains(text) || is_literal_word(text)) {
      fail_here(fmt::format("\"{}\" already means something", shortened(text)));
    }
    if (defined_.contains(text)) fail_here(fmt::format("\"{}\" is defined twice", shortened(text)));
    at_ += 2;
    const NodeId value = expression(Binding::anything);
    expect(";");
    defined_.emplace(text, value);
  }

  // Builds, and points at the operator if the operands do not fit.
  NodeId apply(Op op, std::vector<NodeId> operands, std::size_t position) {
    try {
      return make_.apply(op, std::move(operands));
    } catch (const Error& error) {
      fail_at(source_, position, error.what());
    }
  }

  struct Infix {
    Op op;
    Binding binding;
  };

  // The binary operation that the next token writes; & | ^ on two bools are the logical ones.
  std::optional<Infix> infix() const {
    if (at_word("and")) return Infix{Op::logical_and, Binding::conjunction};
    if (at_word("or")) return Infix{Op::logical_or, Binding::disjunction};
    if (peek().kind != TokenKind::symbol) return std::nullopt;
    for (const OpInfo& row : op_table()) {
      if (row.arity == 2 && row.infix == peek().text) return Infix{row.op, binding_of(row.op)};
    }
    return std::nullopt;
  }

  Op on_bools(Op op, NodeId left, NodeId right) const {
    if (make_.type(left) != Type::boolean || make_.type(right) != Type::boolean) return op;
    if (op == Op::bit_and) return Op::logical_and;
    if (op == Op::bit_or) return Op::logical_or;
    if (op == Op::bit_xor) return Op::logical_xor;
    return op;
  }

  // Everything that binds at least as tightly as `loosest`.
  NodeId expression(Binding loosest) {
    if (++depth_ > deepest)
      fail_here(fmt::format("nested deeper than {} levels; name parts of it: t = ...;", deepest));
    NodeId left = prefix(loosest);
    while (const auto next = infix()) {
      if (next->binding < loosest) break;
      const std::size_t position = peek().position;
      ++at_;
      // Powers lean to the right and take a sign there; everything else leans to the left.
      const bool power = next->binding == Binding::power;
      const NodeId right = expression(power ? Binding::sign : tighter(next->binding));
      left = apply(on_bools(next->op, left, right), {left, right}, position);
      if (next->binding == Binding::comparison) {
        const auto again = infix();
        if (again && again->binding == Binding::comparison) {
          fail_here("comparisons do not chain; write (a < b) && (b < c)");
        }
      }
    }
    --depth_;
    return left;
  }

  NodeId prefix(Binding loosest) {
    const std::size_t position = peek().position;
    if (at_symbol("-") || at_symbol("~") || at_symbol("+")) {
      if (loosest > Binding::sign) fail_here("a sign needs brackets here");
      const char sign = peek().text[0];
      ++at_;
      // A sign directly before a number makes a constant, unless the number is the base of a power.
      if (sign == '-' && peek().kind == TokenKind::number && peek(1).text != "**")
        return number(true);
      if (sign == '-' && at_word("inf") && peek(1).text != "**") {
        ++at_;
        return make_.real(-std::numeric_limits<double>::infinity());
      }
      const NodeId operand = expression(Binding::sign);
      if (sign == '+') return operand;
      if (sign == '~' && make_.type(operand) == Type::boolean)
        return apply(Op::logical_not, {operand}, position);
      return apply(sign == '-' ? Op::neg : Op::bit_not, {operand}, position);
    }
    if (at_symbol("!") || at_word("not")) {
      // Brackets are needed where a tighter operand is due, as in Python's `not`.
      const Binding operand_binding = at_symbol("!") ? Binding::sign : Binding::negation;
      if (loosest > operand_binding) fail_here("\"not\" needs brackets here");
      ++at_;
      return apply(Op::logical_not, {expression(operand_binding)}, position);
    }
    return primary();
  }

  NodeId primary() {
    if (peek().kind == TokenKind::number) return number(false);
    if (accept("(")) {
      const NodeId inside = expression(Binding::anything);
      expect(")");
      return inside;
    }
    if (peek().kind != TokenKind::name) {
      fail_here(peek().kind == TokenKind::end
                    ? "the text ends where a value is due"
                    : fmt::format("\"{}\" stands where a value is due", shortened(peek().text)));
    }
    return named();
  }

  NodeId named() {
    const Token token = peek();
    const std::string name(token.text);
    if (name == "and" || name == "or")
      fail_here(fmt::format("\"{}\" stands where a value is due", name));
    ++at_;
    if (name == "inf") return make_.real(std::numeric_limits<double>::infinity());
    if (name == "nan") return make_.real(std::numeric_limits<double>::quiet_NaN());
    if (name == "true" || name == "false") return make_.boolean(name == "true");
    if (const auto input = find_input(name)) return make_.input(*input);
    if (const auto defined = defined_.find(name); defined != defined_.end()) return defined->second;
    if (const auto slot = captures_.find(name); slot != captures_.end())
      return load(slot->second, token.position);
    if (const auto op = find_op(name)) {
      if (!at_symbol("(")) fail_here(fmt::format("{} is a function; \"(\" is missing", name));
      ++at_;
      return apply(*op, list(")"), token.position);
    }
    if (at_symbol("("))
      fail_at(source_, token.position, fmt::format("unknown function \"{}\"", shortened(name)));
    fail_at(source_, token.position,
            fmt::format("unknown name \"{}\"; known are {}", shortened(name), known_names()));
  }

  NodeId load(const Slot& slot, std::size_t position) {
    std::vector<NodeId> indices;
    if (accept("[")) indices = list("]");
    // a[i][j] is a[i, j].
    while (!indices.empty() && static_cast<int>(indices.size()) < slot.rank && accept("[")) {
      for (const NodeId index : list("]")) indices.push_back(index);
    }
    try {
      return make_.load(slot, std::move(indices));
    } catch (const Error& error) {
      fail_at(source_, position, error.what());
    }
  }

  std::vector<NodeId> list(std::string_view closing) {
    std::vector<NodeId> values;
    if (accept(closing)) return values;
    do values.push_back(expression(Binding::anything));
    while (accept(","));
    expect(closing);
    return values;
  }

  NodeId number(bool negative) {
    const Token token = peek();
    const char* begin = token.text.data();
    const char* end = begin + token.text.size();
    if (peek(1).kind == TokenKind::name && peek(1).position == token.position + token.text.size()) {
      fail_here("a number runs into a name");
    }
    ++at_;
    if (token.text.find_first_of(".eE") == std::string_view::npos) {
      std::uint64_t magnitude = 0;
      const auto parsed = std::from_chars(begin, end, magnitude);
      const std::uint64_t limit = (std::uint64_t{1} << 63) - (negative ? 0 : 1);
      if (parsed.ec != std::errc() || magnitude > limit) {
        fail_at(source_, token.position, "the integer does not fit 64 bits");
      }
      return make_.integer(static_cast<std::int64_t>(negative ? 0 - magnitude : magnitude));
    }
    double value = 0;
    const auto parsed = std::from_chars(begin, end, value);
    if (parsed.ec == std::errc::result_out_of_range) {
      fail_at(source_, token.position, "the number does not fit a double; write inf or 0.0");
    }
    return make_.real(negative ? -value : value);
  }

  std::optional<Input> find_input(std::string_view name) const {
    for (const Input input : all_inputs) {
      if (input == Input::grad && names_ == Names::user) continue;
      if (name_of(input) == name) return input;
    }
    return std::nullopt;
  }

  static bool is_literal_word(std::string_view name) {
    return name == "inf" || name == "nan" || name == "true" || name == "false" || name == "and" ||
           name == "or" || name == "not";
  }

  std::string known_names() const {
    constexpr int most = 40;
    std::string names;
    int count = 0;
    const auto add = [&](std::string_view name) {
      if (++count > most + 1) return;
      names +=
          fmt::format("{}{}", names.empty() ? "" : ", ", count > most ? "..." : shortened(name));
    };
    for (const Input input : all_inputs) {
      if (find_input(name_of(input))) add(name_of(input));
    }
    for (const auto& [name, slot] : captures_) add(name);
    for (const auto& [name, id] : defined_) add(name);
    return names;
  }

  std::string_view source_;
  std::vector<Token> tokens_;
  Names names_;
  std::size_t at_ = 0;
  int depth_ = 0;
  Builder make_;
  std::map<std::string, Slot, std::less<>> captures_;
  std::map<std::string, NodeId, std::less<>> defined_;
};

}  // namespace

Graph parse(std::string_view text, std::span<const Slot> captures, Names names) {
  return Parser(text, captures, names).program();
}

}  // namespace treadle::ir
