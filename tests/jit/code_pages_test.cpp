#include "jit/code_pages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "fuzz.h"
#include "mappings.h"

namespace treadle::jit {
namespace {

TEST(CodePages, KeepContentsApart) {
  for (int round = 0; round < test::fuzz_count(20); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    CodePages pages;
    std::map<std::byte*, std::pair<std::size_t, std::byte>> taken;
    for (int step = 0; step < 300; ++step) {
      if (taken.size() > 40 || (!taken.empty() && random() % 2 == 0)) {
        auto one = taken.begin();
        std::advance(one, random() % taken.size());
        pages.give_back(one->first);
        taken.erase(one);
      } else {
        const std::size_t bytes = 1 + random() % (random() % 20 == 0 ? 3000000 : 20000);
        const auto value = static_cast<std::byte>(random());
        std::byte* code = pages.take(bytes);
        ASSERT_NE(code, nullptr);
        std::memset(code, static_cast<int>(value), bytes);
        ASSERT_TRUE(pages.seal(code));
        taken[code] = {bytes, value};
      }
      for (const auto& [code, about] : taken) {
        ASSERT_EQ(code[0], about.second);
        ASSERT_EQ(code[about.first - 1], about.second);
      }
    }
  }
}

TEST(CodePages, GiveBackWhatIsEmpty) {
  const int before = test::count_mappings();
  CodePages pages;
  std::byte* one = pages.take(100);
  std::byte* two = pages.take(5000);
  EXPECT_GT(test::count_mappings(), before);
  pages.give_back(one);
  pages.give_back(two);
  EXPECT_EQ(test::count_mappings(), before);
}

}  // namespace
}  // namespace treadle::jit
