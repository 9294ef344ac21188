// What the program prints with --json. Apart from run_program.h, so that only one file compiles a
// JSON library.
//
//   for (const Row& row : rows_of(run_program({"demo", "--json"}).out)) row.numbers.at("keys");
#pragma once

#include <map>
#include <string>
#include <vector>

namespace treadle::cli {

// The fields of one object, by their type.
struct Row {
  std::map<std::string, std::string> texts;
  std::map<std::string, double> numbers;  // true is 1
};

// Throws for what is not a list of objects of texts, numbers and bools.
std::vector<Row> rows_of(const std::string& json);

}  // namespace treadle::cli
