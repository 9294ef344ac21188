// docs/ir.md says what every operation means, docs/text.md shows texts that parse.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "ir/parse.h"
#include "paths.h"
#include "treadle/error.h"

namespace treadle::ir {
namespace {

std::string page(const std::string& name) {
  std::ifstream file(test::project_folder() / "docs" / name);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Docs, EveryOperationIsExplained) {
  const std::string text = page("ir.md");
  for (const OpInfo& row : op_table()) {
    if (row.rule == Rule::leaf) continue;
    EXPECT_THAT(text, testing::HasSubstr(fmt::format("`{}(", row.text)));
  }
}

TEST(Docs, EveryOperatorIsExplained) {
  const std::string text = page("ir.md");
  for (const OpInfo& row : op_table()) {
    if (row.infix.empty()) continue;
    // In a table | would end the cell.
    const std::string infix = row.infix == "|"    ? "\\|"
                              : row.infix == "||" ? "\\|\\|"
                                                  : std::string(row.infix);
    const std::string form =
        row.arity == 1 ? fmt::format("`{}x`", infix) : fmt::format("`x {} y`", infix);
    EXPECT_THAT(text, testing::HasSubstr(form)) << row.text;
  }
}

// The lines of ```treadle blocks; an error that a page shows stands in a block of another kind.
std::vector<std::string> examples(const std::string& text) {
  std::vector<std::string> found;
  const std::string opening = "```treadle\n";
  for (auto at = text.find(opening); at != std::string::npos; at = text.find(opening, at)) {
    at += opening.size();
    const auto end = text.find("```", at);
    found.push_back(text.substr(at, end - at));
  }
  return found;
}

TEST(Docs, ExamplesParse) {
  const std::vector<Slot> captures{{"slopes", DType::f32, 1},
                                   {"document", DType::i32, 1},
                                   {"bias", DType::f32, 3},
                                   {"window", DType::i64, 0},
                                   {"cap", DType::f32, 0}};
  const std::vector<std::string> found = examples(page("text.md"));
  EXPECT_GE(found.size(), 4u);
  for (const std::string& text : found) EXPECT_NO_THROW(parse(text, captures)) << text;
}

}  // namespace
}  // namespace treadle::ir
