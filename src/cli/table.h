// A table that prints itself for people or for programs.
//
//   Table table({{"variant"}, {"forward_ms", "forward ms"}});
//   table.add({"causal", {12.34, "12.3"}});
//   print(table, Format::text);      variant  forward ms
//                                    causal         12.3
//   print(table, Format::json);      [{"variant": "causal", "forward_ms": 12.34}]
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace treadle::cli {

enum class Format { text, json };

// A value and how people see it. An empty cell is blank in text and missing in JSON.
class Cell {
 public:
  using Value = std::variant<std::monostate, std::string, bool, std::int64_t, double>;

  Cell() = default;
  Cell(const char* text)
      : Cell(std::string(text)) {}  // NOLINT: rows are written as lists of values
  Cell(std::string_view text) : Cell(std::string(text)) {}          // NOLINT
  Cell(std::string text) : value_(text), text_(std::move(text)) {}  // NOLINT
  Cell(bool yes) : Cell(yes, yes ? "yes" : "no") {}                 // NOLINT
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  Cell(T number) : Cell(number, std::to_string(number)) {}  // NOLINT

  Cell(bool yes, std::string text) : value_(yes), text_(std::move(text)) {}
  Cell(double number, std::string text) : value_(number), text_(std::move(text)) {}
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  Cell(T number, std::string text)
      : value_(static_cast<std::int64_t>(number)), text_(std::move(text)) {}

  [[nodiscard]] const Value& value() const { return value_; }
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] bool is_number() const {
    return std::holds_alternative<std::int64_t>(value_) || std::holds_alternative<double>(value_);
  }

 private:
  Value value_;
  std::string text_;
};

struct Column {
  enum class Shown { always, only_in_json };

  Column(std::string key) : key(std::move(key)), title(this->key) {}  // NOLINT
  Column(const char* key) : Column(std::string(key)) {}               // NOLINT
  Column(std::string key, std::string title) : key(std::move(key)), title(std::move(title)) {}
  Column(std::string key, Shown shown) : key(std::move(key)), title(this->key), shown(shown) {}

  std::string key;    // in JSON
  std::string title;  // in text
  Shown shown = Shown::always;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell per column.
  void add(std::vector<Cell> row);

  // Columns are as wide as their longest cell; numbers stand at the right, also
  // where some cells of the column are blank.
  [[nodiscard]] std::string to_text() const;
  // A list of objects, one per row.
  [[nodiscard]] std::string to_json() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// To stdout.
void print(const Table& table, Format format);

}  // namespace treadle::cli
