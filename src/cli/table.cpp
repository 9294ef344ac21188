// In: rows. Out: aligned text or JSON.
#include "cli/table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace treadle::cli {
namespace {

using Json = nlohmann::ordered_json;  // fields in the order of the columns

constexpr std::size_t gap = 2;

Json json_of(const Cell::Value& value) {
  return std::visit(
      [](const auto& held) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::monostate>) {
          return nullptr;
        } else {
          return held;
        }
      },
      value);
}

// Counts characters, not bytes, so that names in UTF-8 line up too.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

struct TextColumn {
  std::vector<std::string_view> lines;  // the title first
  std::size_t width = 0;
  bool right = false;
};

TextColumn text_column(const Column& column, const std::vector<std::vector<Cell>>& rows,
                       std::size_t index) {
  TextColumn made{.lines = {column.title}, .width = width_of(column.title), .right = !rows.empty()};
  for (const std::vector<Cell>& row : rows) {
    made.lines.push_back(row[index].text());
    made.width = std::max(made.width, width_of(row[index].text()));
    made.right = made.right && (row[index].is_number() || row[index].text().empty());
  }
  return made;
}

}  // namespace

void Table::add(std::vector<Cell> row) {
  if (row.size() != columns_.size()) {
    base::internal_error("table: a row of {} cells for {} columns", row.size(), columns_.size());
  }
  rows_.push_back(std::move(row));
}

std::string Table::to_text() const {
  std::vector<TextColumn> columns;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].shown == Column::Shown::always) {
      columns.push_back(text_column(columns_[i], rows_, i));
    }
  }
  std::string text;
  for (std::size_t row = 0; row <= rows_.size(); ++row) {
    std::string line;
    for (const TextColumn& column : columns) {
      const std::string_view cell = column.lines[row];
      const std::string padding(column.width - width_of(cell), ' ');
      if (!line.empty()) line.append(gap, ' ');
      line.append(column.right ? padding : "").append(cell).append(column.right ? "" : padding);
    }
    text.append(line, 0, line.find_last_not_of(' ') + 1).push_back('\n');
  }
  return text;
}

std::string Table::to_json() const {
  Json list = Json::array();
  for (const std::vector<Cell>& row : rows_) {
    Json object = Json::object();
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (!std::holds_alternative<std::monostate>(row[i].value())) {
        object[columns_[i].key] = json_of(row[i].value());
      }
    }
    list.push_back(std::move(object));
  }
  return list.dump(2) + "\n";
}

void print(const Table& table, Format format) {
  fmt::print("{}", format == Format::json ? table.to_json() : table.to_text());
}

}  // namespace treadle::cli
