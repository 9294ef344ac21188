// Sums over queries whose leaves several owners have: each hands over nodes, and joined they have
// the bits of the whole sum.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "fuzz.h"
#include "plan/tree_parts.h"
#include "run/sum_tree.h"

namespace treadle::run {
namespace {

using layout::Range;

TEST(TreeParts, AreTheLargestNodesThatOneOwnerCompletes) {
  const std::vector<std::int64_t> leaves{5, 6, 7, 8, 9, 10, 11, 12, 13, 30, 31};
  const plan::TreeParts parts = plan::tree_parts(leaves, 40);
  const std::vector<plan::TreePiece> expected{{1, {5, 6}},  {1, {6, 7}},   {1, {7, 8}},
                                              {2, {8, 12}}, {1, {12, 14}}, {1, {30, 31}},
                                              {1, {31, 32}}};
  EXPECT_EQ(parts.pieces, expected);
  EXPECT_EQ(parts.ends.size(), leaves.size());
}

TEST(TreeParts, AreOneForAllLeaves) {
  std::vector<std::int64_t> leaves(16);
  for (std::size_t i = 0; i < leaves.size(); ++i) leaves[i] = static_cast<std::int64_t>(i);
  EXPECT_EQ(plan::tree_parts(leaves, 16).pieces, (std::vector<plan::TreePiece>{{2, {0, 16}}}));
  EXPECT_EQ(plan::tree_parts(std::vector<std::int64_t>{0}, 1).pieces,
            (std::vector<plan::TreePiece>{{0, {0, 1}}}));
}

constexpr std::int64_t rows = 5, length = 3;

// What a leaf adds: some rows, numbers of very different sizes.
struct Leaf {
  std::vector<std::int64_t> rows;
  std::vector<float> numbers;
};

class Memory {
 public:
  explicit Memory(std::int64_t leaves) : leaves_(leaves) {
    workspace_.reserve({.bytes = static_cast<std::size_t>(
                            measured([&](Carver& c) { tree_.carve(c, rows, length, leaves_); }))});
    Carver carver(workspace_.memory());
    tree_.carve(carver, rows, length, leaves);
    tree_.clear();
  }
  SumTree<float>& tree() { return tree_; }
  void add(const Leaf& leaf) {
    for (const std::int64_t row : leaf.rows) {
      tree_.touch(row, row + 1);
      for (std::int64_t i = 0; i < length; ++i)
        tree_.leaf()[row * length + i] += leaf.numbers[static_cast<std::size_t>(row * length + i)];
    }
  }
  std::vector<float> finish() {
    const float* sum = tree_.finish();
    return {sum, sum + rows * length};
  }

 private:
  std::int64_t leaves_;
  Workspace workspace_;
  SumTree<float> tree_;
};

struct HandedOver {
  plan::TreePiece piece;
  std::vector<std::pair<std::int64_t, std::vector<float>>> rows;
};

TEST(SumParts, JoinToTheBitsOfTheWholeSum) {
  for (int round = 0; round < test::fuzz_count(2000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    const auto pick = [&](std::int64_t most) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most));
    };
    const std::int64_t count = round % 7 == 0 ? 1 + pick(5000) : 1 + pick(90);
    const std::int64_t owners = 1 + pick(5);
    const std::int64_t stretch = 1 + pick(40);
    std::vector<Leaf> leaves(static_cast<std::size_t>(count));
    std::vector<std::int64_t> owner_of;
    for (Leaf& leaf : leaves) {
      const std::int64_t empty = pick(3) == 0 ? 1 : 0;
      for (std::int64_t row = 0; row < rows; ++row)
        if (empty == 0 && pick(3) != 0) leaf.rows.push_back(row);
      for (std::int64_t i = 0; i < rows * length; ++i)
        leaf.numbers.push_back(
            std::ldexp(static_cast<float>(pick(1000)) - 500.F, static_cast<int>(pick(20))));
      const bool goes_on = !owner_of.empty() && pick(stretch) != 0;
      owner_of.push_back(goes_on ? owner_of.back() : pick(owners));
    }
    Memory whole(count);
    for (const Leaf& leaf : leaves) {
      whole.add(leaf);
      whole.tree().close_leaf();
    }
    std::vector<HandedOver> all;
    for (std::int64_t owner = 0; owner < owners; ++owner) {
      std::vector<std::int64_t> own;
      for (std::int64_t i = 0; i < count; ++i)
        if (owner_of[static_cast<std::size_t>(i)] == owner) own.push_back(i);
      const plan::TreeParts parts = plan::tree_parts(own, count);
      std::vector<HandedOver> given;
      for (const plan::TreePiece& piece : parts.pieces) given.push_back({piece, {}});
      Memory part(count);
      for (std::size_t i = 0; i < own.size(); ++i) {
        part.add(leaves[static_cast<std::size_t>(own[i])]);
        part.tree().close_leaf(parts.ends[i], [&](std::size_t piece, std::int64_t begin,
                                                  std::int64_t end, const float* sums) {
          for (std::int64_t row = begin; row < end; ++row, sums += length)
            given[piece].rows.push_back({row, {sums, sums + length}});
        });
      }
      all.insert(all.end(), given.begin(), given.end());
    }
    std::ranges::sort(all, {}, [](const HandedOver& over) { return over.piece.leaves.begin; });
    Memory joined(count);
    for (const HandedOver& over : all) {
      if (over.rows.empty()) continue;  // nobody has to know of those
      joined.tree().open_piece(over.piece);
      for (const auto& [row, numbers] : over.rows) {
        joined.tree().touch(row, row + 1);
        std::copy(numbers.begin(), numbers.end(), joined.tree().leaf() + row * length);
      }
      joined.tree().close_piece(over.piece);
    }
    ASSERT_EQ(joined.finish(), whole.finish());
  }
}

}  // namespace
}  // namespace treadle::run
