// What the compiler knows of traced values: result types, and what it refuses.
#include <gtest/gtest.h>

#include <concepts>
#include <type_traits>
#include <vector>

#include "expect_error.h"
#include "traced.h"
#include "treadle/mods.h"

namespace treadle {
namespace {

using test::traced_mask;
using test::traced_score;

template <class A, class B>
concept divides = requires(A a, B b) { a / b; };
template <class A, class B>
concept takes_remainder = requires(A a, B b) { a % b; };
template <class A, class B>
concept floor_divides = requires(A a, B b) { floor_div(a, b); };
template <class A, class B>
concept shifts = requires(A a, B b) { a << b; };
template <class A, class B>
concept ands = requires(A a, B b) { a&& b; };
template <class A, class B>
concept bit_ands = requires(A a, B b) { a & b; };
template <class A>
concept negates = requires(A a) { !a; };
template <class A, class B>
concept adds = requires(A a, B b) { a + b; };
template <class C, class A, class B>
concept chooses = requires(C c, A a, B b) { where(c, a, b); };
template <class A>
concept branches = std::constructible_from<bool, A>;  // what `if` asks for

// Division never decides by itself what 7 / 2 is.
static_assert(!divides<Index, Index> && !divides<Index, int> && !divides<int, Index>);
static_assert(!divides<Bool, Index> && !divides<bool, Index>);
static_assert(divides<Float, Index> && divides<Index, double> && divides<Index, Value>);
static_assert(takes_remainder<Index, Index> && takes_remainder<Index, int>);
static_assert(takes_remainder<Value, Index> && takes_remainder<Index, Capture>);
static_assert(!takes_remainder<Float, Index> && !takes_remainder<Index, Float>);
static_assert(!takes_remainder<Index, double> && !takes_remainder<double, Index>);
static_assert(floor_divides<Index, Index> && !floor_divides<Float, Index>);
static_assert(shifts<Index, int> && !shifts<Index, double> && !shifts<Float, int>);

// Truth is for bools, and nobody branches on it.
static_assert(ands<Bool, Bool> && ands<bool, Bool> && ands<Value, Bool>);
static_assert(!ands<Index, Bool> && !ands<Bool, Float> && !ands<Bool, int>);
static_assert(bit_ands<Bool, Bool> && bit_ands<Index, int> && !bit_ands<Float, Index>);
static_assert(negates<Bool> && negates<Value> && !negates<Index> && !negates<Float>);
static_assert(chooses<Bool, Float, double> && !chooses<Index, Float, Float>);
static_assert(!branches<Bool> && !branches<Index> && !branches<Float> && !branches<Value>);
static_assert(!std::convertible_to<Float, double> && !std::convertible_to<Index, std::int64_t>);

// Only traced values are written down, and only beside what may stand beside them.
static_assert(adds<Float, Tensor> && adds<Index, View> && adds<Index, Capture>);
static_assert(!adds<Capture, Capture> && !adds<Tensor, double>);
static_assert(!adds<Float, std::vector<float>> && !adds<Float, const char*>);

// A float stays one, an integer does not silently become one, a bool counts as an integer.
[[maybe_unused]] void result_types(Float s, Index i, Bool t, Value v) {
  static_assert(std::same_as<decltype(s + i), Float> && std::same_as<decltype(2 * s), Float>);
  static_assert(std::same_as<decltype(i + 1), Index> && std::same_as<decltype(i + 1.0), Float>);
  static_assert(std::same_as<decltype(t + t), Index> && std::same_as<decltype(-t), Index>);
  static_assert(std::same_as<decltype(i + v), Value> && std::same_as<decltype(s + v), Float>);
  static_assert(std::same_as<decltype(i / 2.0), Float> && std::same_as<decltype(i % 2), Index>);
  static_assert(std::same_as<decltype(i < s), Bool> && std::same_as<decltype(t && v), Bool>);
  static_assert(std::same_as<decltype(t & t), Bool> && std::same_as<decltype(t & i), Index>);
  static_assert(std::same_as<decltype(~t), Bool> && std::same_as<decltype(~i), Index>);
  static_assert(std::same_as<decltype(v & v), Value> && std::same_as<decltype(~v), Value>);
  static_assert(std::same_as<decltype(abs(i)), Index> && std::same_as<decltype(abs(s)), Float>);
  static_assert(std::same_as<decltype(exp(i)), Float> && std::same_as<decltype(exp(v)), Float>);
  static_assert(std::same_as<decltype(floor(i)), Index> && std::same_as<decltype(round(s)), Float>);
  static_assert(std::same_as<decltype(min(i, 3)), Index> &&
                std::same_as<decltype(max(s, i)), Float>);
  static_assert(std::same_as<decltype(clamp(i, 0, 9)), Index>);
  static_assert(std::same_as<decltype(clamp(i, 0, 9.0)), Float>);
  static_assert(std::same_as<decltype(where(t, i, 1)), Index>);
  static_assert(std::same_as<decltype(where(t, t, false)), Bool>);
  static_assert(std::same_as<decltype(where(t, s, v)), Float>);
  static_assert(std::same_as<decltype(to_int(s)), Index> && std::same_as<decltype(isnan(v)), Bool>);
}

// An Index goes where a Float is wanted; the other way needs a word.
static_assert(std::convertible_to<Index, Float> && std::convertible_to<Value, Float>);
static_assert(!std::convertible_to<Float, Index> && !std::convertible_to<Value, Index>);
static_assert(!std::convertible_to<Value, Bool>);

// What can be a mod.
using FiveIndices = decltype([](Index, Index, Index, Index, Index) { return 0; });
using ReturnsText = decltype([](Score, Index, Index, Index, Index) { return "score"; });
using ReturnsNothing = decltype([](Index, Index, Index, Index) {});
using Changes = decltype([n = 0](Index, Index, Index, Index) mutable { return ++n > 1; });
using NotCopied = decltype([t = Tensor()](Index, Index, Index, Index) { return true; });
static_assert(!std::constructible_from<ScoreMod, FiveIndices>);
static_assert(!std::constructible_from<ScoreMod, ReturnsText>);
static_assert(!std::constructible_from<MaskMod, ReturnsNothing>);
static_assert(!std::constructible_from<MaskMod, Changes>);
static_assert(!std::constructible_from<MaskMod, NotCopied>);
static_assert(!std::constructible_from<MaskMod, ScoreMod>);
static_assert(!std::constructible_from<ScoreMod, MaskMod>);
static_assert(std::constructible_from<ScoreMod, Expression>);
static_assert(std::constructible_from<MaskMod, Expression>);

TEST(Types, PromotionIsWrittenDown) {
  EXPECT_EQ(traced_score([](Score s, Index, Index, Index q, Index) { return s + q; }).text(),
            "score + float(q)");
  EXPECT_EQ(traced_score([](Score s, Index, Index, Index q, Index) { return s + q * 2; }).text(),
            "score + float(q * 2)");
  EXPECT_EQ(
      traced_score([](Score s, Index, Index, Index q, Index kv) { return s + (q > kv); }).text(),
      "score + float(q > kv)");
  EXPECT_EQ(traced_score([](Score s, Index, Index, Index, Index) { return s * true; }).text(),
            "score * 1.0");
  EXPECT_EQ(traced_mask([](Index, Index, Index q, Index) { return q < 2.5; }).text(),
            "float(q) < 2.5");
}

TEST(Types, NumbersOfEveryCppType) {
  const auto text = [](auto number) {
    return traced_score([=](Score s, Index, Index, Index, Index) { return s + number; }).text();
  };
  EXPECT_EQ(text(1), "score + 1.0");
  EXPECT_EQ(text(1u), "score + 1.0");
  EXPECT_EQ(text(static_cast<std::int8_t>(-1)), "score + -1.0");
  EXPECT_EQ(text(static_cast<std::uint8_t>(255)), "score + 255.0");
  EXPECT_EQ(text(std::size_t{7}), "score + 7.0");
  EXPECT_EQ(text(0.5f), "score + 0.5");
  EXPECT_EQ(text(0.5L), "score + 0.5");
  EXPECT_EQ(text(0.1f), "score + 0.10000000149011612");
  EXPECT_EQ(text(std::uint64_t{INT64_MAX}), "score + float(9223372036854775807)");
}

// Values that no traced one takes part in yet have the types that a traced one would have.
TEST(Types, OfValuesOutsideAMod) {
  const Tensor truth(DType::boolean, {}), number(DType::i32, {}), numbers(DType::f16, {4});
  const Capture flag("flag", truth), count("count", number), table("table", numbers);
  const auto type = [](const Value& value) { return trace::type_of(value); };
  EXPECT_EQ(type(flag()), ir::Type::boolean);
  EXPECT_EQ(type(flag() & flag()), ir::Type::boolean);
  EXPECT_EQ(type(flag() & count()), ir::Type::integer);
  EXPECT_EQ(type(flag() + 1), ir::Type::integer);
  EXPECT_EQ(type(floor(count())), ir::Type::integer);
  EXPECT_EQ(type(count() / 2), ir::Type::real);
  EXPECT_EQ(type(table(count())), ir::Type::real);
  EXPECT_EQ(type(where(flag(), count(), 0.5)), ir::Type::real);
  EXPECT_EQ(type(isnan(table(0)) || flag()), ir::Type::boolean);
  // An error is reported where the type is asked for, also through what is made of it.
  EXPECT_ERROR(type(table(1.5)), "table: index 0 is a float; indices are integers");
  EXPECT_ERROR(type(table(1.5) + 1), "table: index 0 is a float; indices are integers");
  EXPECT_ERROR(type(floor_div(count(), 0)), "floor_div: division by the constant 0");
  Value gone = count();
  const Value here = std::move(gone);
  EXPECT_ERROR(type(gone + 1),  // NOLINT: a value that was moved from is what is tested
               "mod: it uses a value that was traced in another mod; a traced value lives inside "
               "one call of one mod");
}

// In linear time: each link knows its type.
TEST(Types, OfALongChainOutsideAMod) {
  const Tensor truth(DType::boolean, {});
  const Capture flag("flag", truth);
  const auto mask = [&](Index, Index, Index q, Index kv) {
    Value all = flag();
    for (int i = 0; i < 4000; ++i) all = all & flag();
    return all & (q >= kv);
  };
  EXPECT_EQ(traced_mask(mask).graph.size(), 4005);
}

TEST(Types, AFloatMayBeNamedBeforeItIsUsed) {
  EXPECT_EQ(traced_score([](Score s, Index, Index, Index q, Index kv) {
              const Float distance = q - kv;
              return s - distance / 2;
            }).text(),
            "score - float(q - kv) / 2.0");
}

}  // namespace
}  // namespace treadle
