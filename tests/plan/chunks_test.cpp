// Borders of partial sums: a function of the position alone.
#include "plan/chunks.h"

#include <gtest/gtest.h>

namespace treadle::plan {
namespace {

using layout::Range;

TEST(Chunks, BordersAreWhereTheContractSays) {
  // Every 1024 up to 65,536, then every 2048 up to 131,072, doubling with each octave.
  std::int64_t begin = 0, chunk = 0;
  for (std::int64_t length = 1024, octave_end = 65'536; octave_end <= std::int64_t{1} << 31;
       length *= 2, octave_end *= 2) {
    for (; begin < octave_end; begin += length, ++chunk) {
      ASSERT_EQ(keys_of_chunk(chunk), Range(begin, begin + length));
      ASSERT_EQ(chunk_of(begin), chunk);
      ASSERT_EQ(chunk_of(begin + length / 3), chunk);
      ASSERT_EQ(chunk_of(begin + length - 1), chunk);
    }
  }
}

TEST(Chunks, OfARange) {
  EXPECT_EQ(chunks_of({}), Range());
  EXPECT_TRUE(chunks_of({500, 500}).empty());
  EXPECT_EQ(chunks_of({0, 1}), Range(0, 1));
  EXPECT_EQ(chunks_of({0, 1024}), Range(0, 1));
  EXPECT_EQ(chunks_of({0, 1025}), Range(0, 2));
  EXPECT_EQ(chunks_of({1023, 1025}), Range(0, 2));
  EXPECT_EQ(chunks_of({65'535, 67'585}), Range(63, 66));
}

TEST(Chunks, TheLongest) {
  EXPECT_EQ(longest_chunk({}), 0);
  EXPECT_EQ(longest_chunk(700), 700);
  EXPECT_EQ(longest_chunk({1000, 1100}), 76);
  EXPECT_EQ(longest_chunk(5000), 1024);
  EXPECT_EQ(longest_chunk(65'636), 1024);  // a longer chunk begins, and holds 100
  EXPECT_EQ(longest_chunk(67'500), 1964);
  EXPECT_EQ(longest_chunk(1 << 20), 16'384);
}

}  // namespace
}  // namespace treadle::plan
