// What is said about a choice.
#include "layout/choice_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace treadle::layout {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const Order residues{.kind = Order::Kind::residue, .modulus = 128};

std::vector<Choice> some() {
  return {{residues, 16, 1000, false, {.columns = 40, .tiles = 4, .runs = 8, .pieces = 40}},
          {residues, 32, 1500, false, {.columns = 60, .tiles = 2, .runs = 4, .pieces = 60}},
          {{}, 48, 4000.4, true, {.columns = 800, .tiles = 2, .runs = 6.2, .pieces = 6.2}}};
}

TEST(ChoiceText, ATableAndTheBestBesideTheNext) {
  EXPECT_EQ(
      to_text(some()),
      "order            tiles of   cost  columns  tiles  runs  pieces\n"
      "residues of 128        16   1000       40      4     8      40\n"
      "residues of 128        32   1500       60      2     4      60\n"
      "identity               48  ~4000     ~800      2    ~6      ~6\n"
      "cheapest: residues of 128, tiles of 16: cost 1000; 40 columns, 4 tiles, 8 runs\n"
      "next: residues of 128, tiles of 32: 1.5 times the cost; 60 columns, 2 tiles, 4 runs\n"
      "next order: identity, tiles of 48: 4 times the cost; ~800 columns, 2 tiles, ~6 runs\n");
}

TEST(ChoiceText, LongTablesAreCut) {
  const std::string text = to_text(some(), 2);
  EXPECT_THAT(text, Not(HasSubstr("identity               48")));
  EXPECT_THAT(text, HasSubstr("\n1 more, up to a cost of ~4000\ncheapest: "));
}

TEST(ChoiceText, OneCandidateOrNone) {
  const std::vector<Choice> all = some();
  EXPECT_EQ(comparison_of_first(std::span(all).first(1)),
            "cheapest: residues of 128, tiles of 16: cost 1000; 40 columns, 4 tiles, 8 runs\n");
  EXPECT_EQ(comparison_of_first({}), "");
}

}  // namespace
}  // namespace treadle::layout
