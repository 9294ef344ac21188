// Printing and parsing of random graphs and random texts.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "random_graph.h"
#include "treadle/error.h"

namespace treadle::ir {
namespace {

using test::Random;

Graph any_graph(Random& random) {
  test::GraphOptions options =
      test::chance(random, 0.3) ? test::mask_options() : test::GraphOptions{};
  options.output = static_cast<Type>(test::random_int(random, 0, 2));
  options.outputs = static_cast<int>(test::random_int(random, 1, 3));
  options.operations = static_cast<int>(test::random_int(random, 0, 60));
  if (options.output == Type::real) options.floats = true;
  return test::random_graph(random, options);
}

TEST(TextFuzz, RandomGraphsReadBackAsTheyWere) {
  for (int round = 0; round < test::fuzz_count(20'000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    const Graph graph = any_graph(random);
    const std::string text = to_text(graph);
    ASSERT_EQ(parse(text, graph.slots()), graph) << text;
    verify(graph);
  }
}

// Either a graph, which then reads back as itself, or treadle::Error. Anything else fails the test;
// what the sanitizers see ends it.
void read(std::string_view text, std::span<const Slot> slots) {
  try {
    const Graph graph = parse(text, slots);
    verify(graph);
    ASSERT_EQ(parse(to_text(graph), graph.slots()), graph) << text;
  } catch (const Error&) {
  }
}

constexpr std::string_view pieces[] = {"(",
                                       ")",
                                       "[",
                                       "]",
                                       ",",
                                       ";",
                                       "=",
                                       "**",
                                       "-",
                                       "!",
                                       "~",
                                       "not",
                                       "and",
                                       "<",
                                       "==",
                                       "2",
                                       ".",
                                       "1e",
                                       "e5",
                                       "1e999",
                                       "0",
                                       "-0.0",
                                       "inf",
                                       "where",
                                       "int",
                                       "q",
                                       "score",
                                       "t0",
                                       "#",
                                       "\n",
                                       "i64_3[",
                                       "bool_0",
                                       "tanh(",
                                       "//",
                                       "%",
                                       "<<",
                                       "&",
                                       "\xC3",
                                       "\\",
                                       "\"",
                                       "$",
                                       "f32_1[h]",
                                       "99999999999999999999"};

std::string mutated(Random& random, std::string text) {
  const auto somewhere = [&] {
    return static_cast<std::size_t>(test::random_int(random, 0, std::ssize(text)));
  };
  for (auto edits = test::random_int(random, 1, 4); edits > 0; --edits) {
    const std::size_t at = somewhere();
    switch (test::random_int(random, 0, 4)) {
      case 0: text.erase(at, static_cast<std::size_t>(test::random_int(random, 1, 5))); break;
      case 1: text.insert(at, test::one_of(random, std::span(pieces))); break;
      case 2: text.insert(at, 1, static_cast<char>(test::random_int(random, 0, 255))); break;
      case 3: text.resize(at); break;
      case 4: text.insert(at, text.substr(somewhere(), 12)); break;
    }
  }
  return text;
}

TEST(TextFuzz, MutatedTextsAreReadOrRefused) {
  const std::vector<Slot> slots = test::GraphOptions{}.slots;
  for (int round = 0; round < test::fuzz_count(40'000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    read(mutated(random, to_text(any_graph(random))), slots);
    if (HasFatalFailure()) return;
  }
}

TEST(TextFuzz, RandomTokensAreReadOrRefused) {
  const std::vector<Slot> slots = test::GraphOptions{}.slots;
  for (int round = 0; round < test::fuzz_count(40'000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    std::string text;
    for (auto n = test::random_int(random, 0, 12); n > 0; --n) {
      text += test::one_of(random, std::span(pieces));
      if (test::chance(random, 0.7)) text += ' ';
    }
    read(text, slots);
    if (HasFatalFailure()) return;
  }
}

TEST(TextFuzz, RandomBytesAreReadOrRefused) {
  for (int round = 0; round < test::fuzz_count(20'000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    std::string text;
    const bool printable = test::chance(random, 0.7);
    for (auto n = test::random_int(random, 0, 40); n > 0; --n) {
      text += static_cast<char>(printable ? test::random_int(random, 32, 126)
                                          : test::random_int(random, 0, 255));
    }
    read(text, {});
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace treadle::ir
