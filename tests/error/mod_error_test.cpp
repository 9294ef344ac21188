// What tracing says about mods: their results, their types, their captures.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

#include "expect_error.h"
#include "treadle/attention.h"
#include "treadle/mods.h"

namespace treadle {
namespace {

using test::expect_error;

void expect_score_refused(const ScoreMod& mod, const std::string& message) {
  Options options;
  options.score_mod = mod;
  expect_error([&] { (void)compile(options); }, message);
}

void expect_mask_refused(const MaskMod& mask, const std::string& message) {
  Options options;
  options.mask = mask;
  expect_error([&] { (void)compile(options); }, message);
}

TEST(ModErrors, AScoreModThatReturnsABool) {
  expect_score_refused(
      [](Score, Index, Index, Index q, Index kv) { return q >= kv; },
      "score mod: it returns a bool; a score mod returns a number (a mask returns a bool)");
}

TEST(ModErrors, AMaskThatReturnsAnInteger) {
  expect_mask_refused([](Index, Index, Index q, Index kv) { return q - kv; },
                      "mask: it returns a value of type int; a mask returns a bool");
}

TEST(ModErrors, AMaskThatReturnsANumber) {
  expect_mask_refused([](Index, Index, Index, Index) { return 0.5; },
                      "mask: it returns a value of type float; a mask returns a bool");
}

TEST(ModErrors, AMaskThatReturnsAnElementOfANumber) {
  const Tensor bias(DType::f32, {3});
  expect_mask_refused([&](Index, Index, Index q, Index) { return bias(q); },
                      "mask: it returns a value of type float; a mask returns a bool");
}

TEST(ModErrors, AMaskTextThatMentionsTheScore) {
  expect_mask_refused(parse("score > 0"),
                      "mask: \"score > 0.0\" mentions the score; which pairs are visible must not "
                      "depend on it");
}

TEST(ModErrors, ATextOfTwoExpressions) {
  expect_error([] { (void)parse("score, q"); }, "parse: a mod is one expression, the text has 2");
}

TEST(ModErrors, AFloatUsedAsAnIndex) {
  const Tensor bias(DType::f32, {3});
  expect_score_refused(
      [&](Score s, Index, Index h, Index, Index) { return s + Index(bias(h)); },
      "mod: a value of type float is used as one of type int; to_int() converts it");
}

TEST(ModErrors, AnIntegerUsedAsABool) {
  const Tensor ids(DType::i32, {3});
  expect_mask_refused(
      [&](Index, Index, Index q, Index) { return Bool(ids(q)); },
      "mod: a value of type int is used as one of type bool; to_bool() converts it");
}

TEST(ModErrors, ANumberTooLargeForAnInteger) {
  const std::string message =
      "mod: the number 9223372036854775808 does not fit a signed 64-bit integer";
  const std::uint64_t number = std::uint64_t{1} << 63;
  expect_mask_refused([=](Index, Index, Index q, Index) { return q < number; }, message);
  expect_error([&] { (void)Capture("size", number); }, message);
}

TEST(ModErrors, ALogicalOperationOnIntegers) {
  const Tensor ids(DType::i32, {3});
  expect_mask_refused([&](Index, Index, Index q, Index kv) { return ids(q) && q >= kv; },
                      "logical_and: got an int; it takes bools");
}

TEST(ModErrors, ARemainderOfAFloat) {
  const Tensor bias(DType::f32, {3});
  expect_mask_refused([&](Index, Index, Index q, Index) { return q % bias(q) == 0; },
                      "mod: got a float; it takes integers");
}

TEST(ModErrors, AConditionThatIsNoBool) {
  const Tensor ids(DType::i32, {3});
  expect_score_refused([&](Score s, Index, Index, Index q, Index) { return where(ids(q), s, 0); },
                       "where: got an int; it takes a bool as its first operand");
}

TEST(ModErrors, DivisionByZero) {
  expect_mask_refused(mods::dilated(0), "mod: division by the constant 0");
}

TEST(ModErrors, TooFewIndices) {
  const Tensor memory(DType::f32, {3, 2});
  const Capture table("table", memory);
  expect_score_refused([=](Score s, Index, Index h, Index, Index) { return s + table(h); },
                       "table: 1 index given, the buffer has rank 2");
}

TEST(ModErrors, ABufferUsedAsANumber) {
  const Tensor memory(DType::f32, {3});
  const Capture table("table", memory);
  expect_score_refused([=](Score s, Index, Index, Index, Index) { return s + table; },
                       "table: 0 indices given, the buffer has rank 1");
}

TEST(ModErrors, AFloatAsAnIndexOfABuffer) {
  const Tensor memory(DType::f32, {3});
  const Capture table("table", memory);
  expect_score_refused([=](Score s, Index, Index, Index, Index) { return s + table(1.0); },
                       "table: index 0 is a float; indices are integers");
}

TEST(ModErrors, ABufferWithoutANameIsStillTalkedAbout) {
  const Tensor table(DType::f32, {3, 2});
  expect_score_refused([&](Score s, Index, Index h, Index, Index) { return s + table(h); },
                       "unnamed0: 1 index given, the buffer has rank 2");
}

TEST(ModErrors, TwoBuffersOfOneName) {
  const Tensor a(DType::f32, {3});
  const Tensor b(DType::f32, {3});
  expect_score_refused([&](Score s, Index, Index h, Index,
                           Index) { return s + Capture("bias", a)(h) + Capture("bias", b)(h); },
                       "capture \"bias\": two captures have this name; one name is one buffer");
}

TEST(ModErrors, OneNameInScoreModAndMaskForTwoBuffers) {
  const Tensor a(DType::f32, {3});
  const Tensor b(DType::i32, {3});
  Options options;
  options.score_mod = mods::alibi({"table", a});
  options.mask = mods::document({"table", b});
  expect_error([&] { (void)compile(options); },
               "capture \"table\": two captures have this name; one name is one buffer");
}

TEST(ModErrors, AGivenNameThatWasTakenAutomatically) {
  const Tensor a(DType::f32, {3});
  const Tensor b(DType::i32, {3});
  Options options;
  options.score_mod = [&](Score s, Index, Index h, Index, Index) { return s + a(h); };
  options.mask = mods::document({"c0", b});
  expect_error(
      [&] { (void)compile(options); },
      "capture \"c0\": a capture without a name is already called so; give that one a name");
}

TEST(ModErrors, ANameThatTextCannotSpell) {
  expect_mask_refused(
      mods::window({"window size", 3}),
      "capture \"window size\": a name is a letter or underscore followed by letters, "
      "digits, underscores");
}

TEST(ModErrors, ANameThatMeansSomething) {
  expect_mask_refused(mods::window({"kv", 3}),
                      "capture \"kv\": the name already means something in the text form");
}

TEST(ModErrors, ACaptureOfATextWithoutAName) {
  const Tensor a(DType::f32, {3});
  expect_error([&] { (void)parse("score", {Capture(a)}); },
               "capture \"\": a name is a letter or underscore followed by letters, digits, "
               "underscores");
}

constexpr auto escaped =
    "mod: it uses a value that was traced in another mod; a traced value lives inside one call of "
    "one mod";

TEST(ModErrors, AValueOfTheScoreModInTheMask) {
  std::optional<Index> kept;
  Options options;
  options.score_mod = [&](Score s, Index, Index, Index q, Index) {
    kept = q;
    return s;
  };
  options.mask = [&](Index, Index, Index, Index kv) { return *kept >= kv; };
  expect_error([&] { (void)compile(options); }, escaped);
}

TEST(ModErrors, AValueOfAnEarlierCompileIsTheResult) {
  std::optional<Score> kept;
  Options options;
  options.score_mod = [&](Score s, Index, Index, Index, Index) {
    if (!kept) kept = s;
    return *kept;
  };
  (void)compile(options);
  expect_error([&] { (void)compile(options); }, escaped);
}

TEST(ModErrors, AnEscapedValueAsAnIndex) {
  const Tensor table(DType::f32, {3});
  std::optional<Index> kept;
  Options options;
  options.score_mod = [&](Score s, Index, Index h, Index, Index) {
    if (!kept) kept = h;
    return s + table(*kept);
  };
  (void)compile(options);
  expect_error([&] { (void)compile(options); }, escaped);
}

}  // namespace
}  // namespace treadle
