// Makes BigBird's mask.
//
// In: its parameters. Out: a mask that reads the random blocks, drawn here, from a table.
#include <algorithm>
#include <vector>

#include "patterns/check_parameters.h"
#include "patterns/owned_capture.h"
#include "treadle/patterns.h"

namespace treadle::patterns {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014). The standard library's distributions differ from one to the
// next; this does not.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  // 0 ... count - 1. The remainder favours small numbers by less than count / 2^64.
  std::int64_t below(std::int64_t count) {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return static_cast<std::int64_t>((z ^ (z >> 31)) % static_cast<std::uint64_t>(count));
  }

 private:
  std::uint64_t state_;
};

// `wanted` different numbers of 0 ... count - 1, all of them if there are not so many (Floyd 1987:
// no list of all needed).
std::vector<std::int64_t> sample(Random& random, std::int64_t count, std::int64_t wanted) {
  std::vector<std::int64_t> chosen;
  for (std::int64_t last = std::max<std::int64_t>(count - wanted, 0); last < count; ++last) {
    const std::int64_t draw = random.below(last + 1);
    const bool taken = std::ranges::find(chosen, draw) != chosen.end();
    chosen.push_back(taken ? last : draw);
  }
  return chosen;
}

// [heads, blocks, random]: the key blocks chosen for each row; -1, which is no block, where there
// are too few.
std::vector<std::int32_t> random_blocks(const BigBird& pattern, std::int64_t blocks) {
  Random random(pattern.seed);
  std::vector<std::int32_t> table;
  for (std::int64_t row = 0; row < pattern.heads * blocks; ++row) {
    const std::int64_t query = row % blocks;
    // What is left to choose from: from `global` on, without the window.
    const std::int64_t window_begin = std::max(pattern.global, query - pattern.reach);
    const std::int64_t window_end = std::min(blocks, query + pattern.reach + 1);
    const std::int64_t window = std::max<std::int64_t>(window_end - window_begin, 0);
    const std::int64_t rest = query < pattern.global ? 0 : blocks - pattern.global - window;
    std::vector<std::int64_t> chosen = sample(random, rest, pattern.random);
    for (std::int64_t& block : chosen) {
      block += pattern.global;
      if (block >= window_begin) block += window;
    }
    chosen.resize(static_cast<std::size_t>(pattern.random), -1);
    for (const std::int64_t block : chosen) table.push_back(static_cast<std::int32_t>(block));
  }
  return table;
}

}  // namespace

MaskMod bigbird(const BigBird& pattern) {
  check_at_least("bigbird", "block size", pattern.block_size, 1);
  check_at_least("bigbird", "length", pattern.length, 0);
  check_at_least("bigbird", "number of heads", pattern.heads, 1);
  check_at_least("bigbird", "reach", pattern.reach, 0);
  check_at_least("bigbird", "number of global blocks", pattern.global, 0);
  check_at_least("bigbird", "number of random blocks", pattern.random, 0);
  check_multiple("bigbird", "length", pattern.length, "block size", pattern.block_size);
  const std::int64_t blocks = pattern.length / pattern.block_size;
  // All columns of the table are compared, so it has no more than there are blocks.
  BigBird fitting = pattern;
  fitting.global = std::min(pattern.global, blocks);
  fitting.random = std::min(pattern.random, blocks);
  const Capture table =
      owned<std::int32_t>(random_blocks(fitting, blocks), {pattern.heads, blocks, fitting.random});
  return [fitting, table](Index, Index h, Index q, Index kv) {
    const Index query = floor_div(q, fitting.block_size);
    const Index key = floor_div(kv, fitting.block_size);
    Bool visible = abs(query - key) <= fitting.reach;
    if (fitting.global > 0) visible = visible || query < fitting.global || key < fitting.global;
    for (std::int64_t i = 0; i < fitting.random; ++i) {
      visible = visible || (fitting.heads == 1 ? table(0, query, i) : table(h, query, i)) == key;
    }
    return visible;
  };
}

}  // namespace treadle::patterns
