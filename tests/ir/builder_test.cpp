// Hash-consing, promotion, refusals.
#include "ir/builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "ir/print.h"
#include "special_values.h"

namespace treadle::ir {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

using test::nan;
const Slot slopes{"slopes", DType::f32, 1};

std::string text_of(const Builder& make, NodeId id) { return to_text(make.finish({id})); }

TEST(Builder, EqualNodesAreMadeOnce) {
  Builder make;
  const NodeId q = make.input(Input::q);
  EXPECT_EQ(make.input(Input::q), q);
  EXPECT_NE(make.input(Input::kv), q);
  EXPECT_EQ(make(Op::add, q, q), make(Op::add, q, q));
  EXPECT_EQ(make.load(slopes, {q}), make.load(slopes, {q}));
  EXPECT_EQ(make.integer(7), make.integer(7));
  EXPECT_NE(make(Op::sub, q, make.integer(7)), make(Op::sub, make.integer(7), q));
}

TEST(Builder, ConstantsDifferByTypeAndBits) {
  Builder make;
  EXPECT_NE(make.real(1), make.integer(1));
  EXPECT_NE(make.integer(1), make.boolean(true));
  EXPECT_NE(make.real(0.0), make.real(-0.0));
  EXPECT_NE(make.real(1), make.real(std::nextafter(1, 2)));
}

TEST(Builder, ThereIsOneNan) {
  Builder make;
  const NodeId id = make.real(nan);
  EXPECT_EQ(make.real(-nan), id);
  EXPECT_EQ(make.real(std::bit_cast<double>(0x7FF0000000000001u)), id);
}

TEST(Builder, OperandsArePromoted) {
  Builder make;
  const NodeId score = make.input(Input::score);
  const NodeId q = make.input(Input::q);
  const NodeId flag = make(Op::lt, q, make.input(Input::kv));
  const auto text = [&](Op op, std::vector<NodeId> operands) {
    return text_of(make, make.apply(op, std::move(operands)));
  };
  EXPECT_EQ(text(Op::add, {score, q}), "score + float(q)");
  EXPECT_EQ(text(Op::add, {flag, q}), "int(q < kv) + q");
  EXPECT_EQ(text(Op::add, {score, flag}), "score + float(q < kv)");
  EXPECT_EQ(text(Op::neg, {flag}), "-int(q < kv)");
  EXPECT_EQ(text(Op::clamp, {q, make.integer(0), make.real(2.5)}), "clamp(float(q), 0.0, 2.5)");
  EXPECT_EQ(text(Op::div, {q, make.integer(2)}), "float(q) / 2.0");
  EXPECT_EQ(text(Op::exp, {flag}), "exp(float(q < kv))");
  EXPECT_EQ(text(Op::isnan, {q}), "isnan(float(q))");
  EXPECT_EQ(text(Op::eq, {flag, q}), "int(q < kv) == q");
  EXPECT_EQ(text(Op::bit_and, {flag, q}), "int(q < kv) & q");
  EXPECT_EQ(text(Op::where, {flag, q, score}), "where(q < kv, float(q), score)");
  EXPECT_EQ(text(Op::where, {flag, flag, q}), "t0 = q < kv;\nwhere(t0, int(t0), q)");
}

TEST(Builder, AnIntegerIsWholeAlready) {
  Builder make;
  const NodeId q = make.input(Input::q);
  for (const Op op : {Op::floor, Op::ceil, Op::round, Op::trunc}) {
    EXPECT_EQ(make(op, q), q);
    EXPECT_EQ(make(op, make.boolean(true)), make.integer(1));
    EXPECT_EQ(make.type(make(op, make.input(Input::score))), Type::real);
  }
}

TEST(Builder, ConstantsAreConvertedWhereThatIsExact) {
  Builder make;
  EXPECT_EQ(make.convert(make.integer(2), Type::real), make.real(2));
  EXPECT_EQ(make.convert(make.boolean(true), Type::real), make.real(1));
  EXPECT_EQ(make.convert(make.boolean(true), Type::integer), make.integer(1));
  const std::int64_t exact = std::int64_t{1} << 53;
  EXPECT_EQ(make.convert(make.integer(-exact), Type::real), make.real(-0x1p53));
  EXPECT_EQ(text_of(make, make.convert(make.integer(exact + 1), Type::real)),
            "float(9007199254740993)");
  EXPECT_EQ(text_of(make, make.convert(make.real(2.5), Type::integer)), "int(2.5)");
  EXPECT_EQ(text_of(make, make.convert(make.integer(5), Type::boolean)), "bool(5)");
}

TEST(Builder, ConvertingToTheOwnTypeIsNothing) {
  Builder make;
  const NodeId q = make.input(Input::q);
  EXPECT_EQ(make(Op::to_int, q), q);
  EXPECT_EQ(make(Op::to_float, make.input(Input::score)), make.input(Input::score));
}

TEST(Builder, RefusesTypesThatDoNotFit) {
  Builder make;
  const NodeId score = make.input(Input::score);
  const NodeId q = make.input(Input::q);
  EXPECT_THAT([&] { make(Op::mod, score, q); },
              ThrowsMessage<Error>("mod: got a float; it takes integers"));
  EXPECT_THAT([&] { make(Op::logical_and, q, make.boolean(true)); },
              ThrowsMessage<Error>("logical_and: got an int; it takes bools"));
  EXPECT_THAT([&] { make(Op::logical_not, score); },
              ThrowsMessage<Error>("logical_not: got a float; it takes bools"));
  EXPECT_THAT([&] { make(Op::where, q, q, q); },
              ThrowsMessage<Error>("where: got an int; it takes a bool as its first operand"));
}

TEST(Builder, RefusesTheWrongNumberOfOperands) {
  Builder make;
  const NodeId q = make.input(Input::q);
  EXPECT_THAT([&] { make(Op::add, q); }, ThrowsMessage<Error>("add: 1 operand given, it takes 2"));
  EXPECT_THAT([&] { make(Op::exp); }, ThrowsMessage<Error>("exp: 0 operands given, it takes 1"));
}

TEST(Builder, RefusesDivisionByTheConstantZero) {
  Builder make;
  const NodeId q = make.input(Input::q);
  EXPECT_THAT([&] { make(Op::floor_div, q, make.integer(0)); },
              ThrowsMessage<Error>("floor_div: division by the constant 0"));
  EXPECT_THAT([&] { make(Op::mod, q, make.boolean(false)); },
              ThrowsMessage<Error>("mod: division by the constant 0"));
  EXPECT_NO_THROW(make(Op::div, q, make.integer(0)));  // a float: inf or NaN
}

TEST(Builder, RefusesLoadsThatDoNotFitTheBuffer) {
  Builder make;
  const NodeId q = make.input(Input::q);
  EXPECT_THAT([&] { make.load(slopes, {q, q}); },
              ThrowsMessage<Error>("slopes: 2 indices given, the buffer has rank 1"));
  EXPECT_THAT([&] { make.load({"bias", DType::f32, 2}, {q}); },
              ThrowsMessage<Error>("bias: 1 index given, the buffer has rank 2"));
  EXPECT_THAT([&] { make.load(slopes, {make.input(Input::score)}); },
              ThrowsMessage<Error>("slopes: index 0 is a float; indices are integers"));
}

TEST(Builder, AnIndexMayBeABool) {
  Builder make;
  const NodeId late = make(Op::gt, make.input(Input::q), make.input(Input::kv));
  EXPECT_EQ(text_of(make, make.load(slopes, {late})), "slopes[int(q > kv)]");
}

TEST(Builder, OneNameIsOneBuffer) {
  Builder make;
  make.load(slopes, {make.input(Input::h)});
  EXPECT_THAT([&] { make.load({"slopes", DType::f64, 0}, {}); },
              ThrowsMessage<Error>("capture \"slopes\" is used as f32 of rank 1 and as f64 of rank "
                                   "0; one name is one buffer"));
}

TEST(Builder, RefusesNamesThatTextCannotSpell) {
  for (const char* name : {"", "2nd", "a-b", "a b", "\xC3\xA9", "a."}) {
    EXPECT_THAT([&] { check_slot_name(name); },
                ThrowsMessage<Error>("capture \"" + std::string(name) +
                                     "\": a name is a letter or underscore followed by letters, "
                                     "digits, underscores"));
  }
  for (const char* name : {"score", "b", "h", "q", "kv", "grad", "inf", "nan", "true", "false",
                           "and", "or", "not", "float", "where", "tanh"}) {
    EXPECT_THAT([&] { check_slot_name(name); },
                ThrowsMessage<Error>("capture \"" + std::string(name) +
                                     "\": the name already means something in the text form"));
  }
  for (const char* name : {"_", "a", "Z9", "t0", "slopes_2", "And"}) check_slot_name(name);
}

TEST(Builder, LeavesAreNotApplied) {
  Builder make;
  EXPECT_THAT([&] { make(Op::load, make.integer(0)); },
              ThrowsMessage<base::InternalError>(HasSubstr("apply: a leaf is not applied")));
  EXPECT_THAT([&] { make(Op::input); },
              ThrowsMessage<base::InternalError>(HasSubstr("apply: a leaf is not applied")));
}

TEST(Builder, CopiesAcrossGraphs) {
  Builder first;
  const Graph graph = first.finish(
      {first(Op::add, first.input(Input::score), first.load(slopes, {first.input(Input::h)}))});
  Builder second;
  second.load({"other", DType::i32, 0}, {});  // slots are numbered by their builder
  const PerNode<NodeId> to = second.copy(graph);
  EXPECT_EQ(to.size(), graph.size());
  EXPECT_EQ(second.finish({to[graph.output()]}), graph);
}

TEST(Builder, ACopiedConversionOfAConstantIsAConstant) {
  Builder first;
  const Graph graph = first.finish({first(Op::to_float, first.input(Input::q))});
  Builder second;
  PerNode<NodeId> to;
  to.push_back(second.integer(3));
  EXPECT_EQ(second.copy(graph, 1, to), second.real(3));
}

}  // namespace
}  // namespace treadle::ir
