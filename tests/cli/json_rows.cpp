#include "json_rows.h"

#include <nlohmann/json.hpp>

namespace treadle::cli {

std::vector<Row> rows_of(const std::string& json) {
  std::vector<Row> rows;
  for (const nlohmann::json& object : nlohmann::json::parse(json)) {
    Row& row = rows.emplace_back();
    for (const auto& [name, value] : object.items()) {
      if (value.is_string()) {
        row.texts[name] = value.get<std::string>();
      } else {
        row.numbers[name] = value.is_boolean() ? value.get<bool>() : value.get<double>();
      }
    }
  }
  return rows;
}

}  // namespace treadle::cli
