// Gradients in the caller's memory: any strides, over what is read, and untouched by a call that
// fails.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "trained.h"

namespace treadle {
namespace {

using test::contiguous;
using test::random_tensor;
using test::same_bits;
using test::Trained;

// Memory around a view of these strides, none of it zero. Negative strides go backwards in it.
struct Room {
  Tensor memory;
  View view;

  Room(DType type, const Dims& shape, const Dims& strides) {
    std::int64_t first = 5, size = 11;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      const std::int64_t reach = std::max<std::int64_t>(shape[axis] - 1, 0) * strides[axis];
      if (reach < 0) first -= reach;
      size += std::abs(reach);
    }
    memory = random_tensor(99, type, {size});
    auto* data = static_cast<std::byte*>(memory.view().data());
    view = View(data + first * static_cast<std::int64_t>(size_of(type)), type, shape, strides);
  }
};

// Strides of a shape whose axes lie in memory in this order, outermost first, so far apart.
Dims strides_of(const Dims& shape, const std::vector<std::size_t>& order, std::int64_t gap) {
  Dims strides(shape.size());
  std::int64_t next = gap;
  for (std::size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = next;
    next = next * shape[order[i]] + gap - 1;
  }
  return strides;
}

struct Rooms {
  Room dq, dk, dv, bias;

  [[nodiscard]] BackwardViews views() const {
    return {dq.view, dk.view, dv.view, {{"bias", bias.view}}};
  }
  void expect(const Backward& expected) const {
    EXPECT_TRUE(same_bits(contiguous(dq.view), expected.dq));
    EXPECT_TRUE(same_bits(contiguous(dk.view), expected.dk));
    EXPECT_TRUE(same_bits(contiguous(dv.view), expected.dv));
    EXPECT_TRUE(same_bits(contiguous(bias.view), expected.of("bias")));
  }
};

Rooms rooms_for(const Trained& t, const std::vector<std::size_t>& order, std::int64_t gap,
                bool backwards = false) {
  const auto room = [&](const Tensor& like, const std::vector<std::size_t>& axes) {
    Dims strides = strides_of(like.shape(), axes, gap);
    if (backwards)
      for (std::int64_t& stride : strides) stride = -stride;
    return Room(like.dtype(), like.shape(), strides);
  };
  return {room(t.q, order), room(t.k, order), room(t.v, order),
          room(t.bias, order.back() == 3 ? std::vector<std::size_t>{0, 1}
                                         : std::vector<std::size_t>{1, 0})};
}

// What lies between the elements of a view stays as it is.
void expect_gaps_untouched(const Room& room) {
  const Tensor before = random_tensor(99, room.memory.dtype(), room.memory.shape());
  Tensor filled = room.memory.clone();
  // Put back what was where the view's elements are: then all must be as it was.
  const auto offset = static_cast<const std::byte*>(ConstView(room.view).data()) -
                      static_cast<const std::byte*>(ConstView(room.memory).data());
  const auto at = [&](const Tensor& t) {
    return static_cast<std::byte*>(const_cast<void*>(ConstView(t).data())) + offset;
  };
  base::copy(View(at(filled), room.view.dtype(), room.view.shape(), room.view.strides()),
             ConstView(at(before), room.view.dtype(), room.view.shape(), room.view.strides()));
  EXPECT_TRUE(same_bits(filled, before));
}

TEST(BackwardInto, AnyStrides) {
  for (const DType type : {DType::f32, DType::bf16, DType::f64}) {
    Trained t(type);
    const Backward expected = t.backward();
    const auto check = [&](const Rooms& rooms) {
      t.attention().backward_into(rooms.views(), t.inputs(), t.saved(), t.dout, t.dlse);
      rooms.expect(expected);
      for (const Room* room : {&rooms.dq, &rooms.dk, &rooms.dv, &rooms.bias})
        expect_gaps_untouched(*room);
    };
    check(rooms_for(t, {0, 1, 2, 3}, 1));
    check(rooms_for(t, {0, 2, 1, 3}, 1));        // heads beside each other
    check(rooms_for(t, {3, 1, 0, 2}, 1));        // elements of a row apart
    check(rooms_for(t, {0, 1, 2, 3}, 3));        // gaps everywhere
    check(rooms_for(t, {2, 0, 1, 3}, 1, true));  // backwards
  }
}

// q, k and v of a position side by side, as one projection makes them, and their gradients, too:
// beside what is read, or over it.
TEST(BackwardInto, Packed) {
  constexpr std::int64_t batch = 2, length = 130, heads = 3, dim = 8;
  const Dims shape{batch, heads, length, dim};
  const Dims strides{length * 3 * heads * dim, dim, 3 * heads * dim, 1};
  const auto part = [&](Tensor& packed, std::int64_t which) {
    return View(packed.data<float>().data() + which * heads * dim, shape, strides);
  };
  Tensor packed = random_tensor(1, DType::f32, {batch, length, 3, heads, dim});
  const Tensor dout = random_tensor(2, DType::f32, shape);
  Options options;
  options.mask = mods::causal();
  const Attention attend = compile(options);
  const Inputs inputs{part(packed, 0), part(packed, 1), part(packed, 2)};
  const Forward y = attend.forward(inputs, {.lse = true});
  const Backward expected = attend.backward(inputs, {y.out, y.lse}, dout);
  Tensor beside(DType::f32, packed.shape());
  for (Tensor* target : {&beside, &packed}) {
    attend.backward_into({part(*target, 0), part(*target, 1), part(*target, 2), {}}, inputs,
                         {y.out, y.lse}, dout);
    EXPECT_TRUE(same_bits(contiguous(part(*target, 0)), expected.dq));
    EXPECT_TRUE(same_bits(contiguous(part(*target, 1)), expected.dk));
    EXPECT_TRUE(same_bits(contiguous(part(*target, 2)), expected.dv));
  }
}

TEST(BackwardInto, AnyOrderOfCaptures) {
  Trained t(DType::f32);
  const Tensor gate = random_tensor(7, DType::f32, {2, 4});
  t.options.score_mod = mods::chain(
      t.options.score_mod, [gate = Capture("gate", gate)](Score s, Index b, Index h, Index, Index) {
        return s * gate(b, h);
      });
  t.options.gradients = {"bias", "gate"};
  const Backward expected = t.backward();
  Tensor dq(DType::f32, t.q.shape()), dk(DType::f32, t.k.shape()), dv(DType::f32, t.v.shape());
  Tensor dbias(DType::f32, t.bias.shape()), dgate(DType::f32, gate.shape());
  t.attention().backward_into({dq, dk, dv, {{"gate", dgate}, {"bias", dbias}}}, t.inputs(),
                              t.saved(), t.dout, t.dlse);
  EXPECT_TRUE(same_bits(dgate, expected.of("gate")));
  EXPECT_TRUE(same_bits(dbias, expected.of("bias")));
}

// Each gradient over what it is the gradient of, and over whatever else is read.
class BackwardOver : public testing::Test {
 protected:
  Trained t{DType::f32};
  Backward expected = t.backward();
  Tensor dq{DType::f32, t.q.shape()}, dk{DType::f32, t.k.shape()}, dv{DType::f32, t.v.shape()},
      dbias{DType::f32, t.bias.shape()};

  void run(const View& q, const View& k, const View& v, const View& bias) {
    t.attention().backward_into({q, k, v, {{"bias", bias}}}, t.inputs(), t.saved(), t.dout, t.dlse);
    EXPECT_TRUE(same_bits(contiguous(q), expected.dq));
    EXPECT_TRUE(same_bits(contiguous(k), expected.dk));
    EXPECT_TRUE(same_bits(contiguous(v), expected.dv));
    EXPECT_TRUE(same_bits(contiguous(bias), expected.of("bias")));
  }
};

TEST_F(BackwardOver, WhatEachIsTheGradientOf) { run(t.q, t.k, t.v, t.bias); }
TEST_F(BackwardOver, Queries) { run(t.q, dk, dv, dbias); }
TEST_F(BackwardOver, Keys) { run(dq, t.k, dv, dbias); }
TEST_F(BackwardOver, TheCapture) { run(dq, dk, dv, t.bias); }
TEST_F(BackwardOver, TheOutputsGradient) {
  run(dq, dk, View(t.dout.data<float>().data() + 3, t.v.shape()), dbias);
}
TEST_F(BackwardOver, TheOutput) {
  run(dq, View(t.out.data<float>().data() + 9, t.k.shape()), dv, dbias);
}
TEST_F(BackwardOver, RowsOfTheForwardPass) {
  run(dq, dk, dv, View(t.lse.data<float>().data() + 1, t.bias.shape()));
}
TEST_F(BackwardOver, RowsOfItsGradient) {
  run(dq, dk, dv, View(t.dlse.data<float>().data() + 2, t.bias.shape()));
}
TEST_F(BackwardOver, QueriesByAnotherGradient) {
  run(dq, dk, dv, View(t.q.data<float>().data() + 17, t.bias.shape()));
}

TEST_F(BackwardOver, WhatTheMaskReads) {
  Tensor memory(DType::f32, t.q.shape());
  const View ids(reinterpret_cast<std::int32_t*>(memory.data<float>().data()) + 70, Dims{130});
  for (std::int64_t i = 0; i < 130; ++i)
    ids.at<std::int32_t>({i}) = static_cast<std::int32_t>(i / 37);
  t.options.mask = mods::document(Capture("ids", ConstView(ids)));
  expected = t.backward();
  run(memory, dk, dv, dbias);
}

TEST_F(BackwardOver, QueriesWithNanInThem) {
  t.q.at<float>({0, 1, 17, 2}) = std::nanf("");
  expected = t.backward();
  EXPECT_TRUE(std::isnan(expected.dk.at<float>({0, 0, 20, 0})));
  run(t.q, t.k, t.v, t.bias);
}

// A NaN is met only after much has been written; then all of it is written again.
TEST(BackwardInto, WithNan) {
  for (const auto& order : {std::vector<std::size_t>{0, 1, 2, 3}, {3, 1, 0, 2}}) {
    Trained t(DType::f32);
    t.v.at<float>({1, 1, 100, 4}) = std::nanf("");
    const Backward expected = t.backward();
    const Rooms rooms = rooms_for(t, order, 1);
    t.attention().backward_into(rooms.views(), t.inputs(), t.saved(), t.dout, t.dlse);
    rooms.expect(expected);
    EXPECT_TRUE(std::isnan(rooms.bias.view.at<float>({2, 100})));
    EXPECT_TRUE(std::isfinite(rooms.bias.view.at<float>({2, 5})));
  }
}

TEST(BackwardInto, APoisonedCallHasWrittenNothing) {
  const auto expect_untouched = [](const Trained& t, const Call& call, const char* where) {
    for (const auto& order : {std::vector<std::size_t>{0, 1, 2, 3}, {3, 1, 0, 2}}) {
      const Rooms rooms = rooms_for(t, order, 1);
      EXPECT_THROW(
          t.attention().backward_into(rooms.views(), t.inputs(), t.saved(), t.dout, t.dlse, call),
          Error)
          << where;
      for (const Room* room : {&rooms.dq, &rooms.dk, &rooms.dv, &rooms.bias})
        EXPECT_TRUE(same_bits(room->memory, random_tensor(99, DType::f32, room->memory.shape())))
            << where;
    }
  };
  Trained t(DType::f32);
  t.backward();
  // The last key of the last head, which few queries see.
  const Tensor steps(DType::f32, {439});
  t.options.score_mod = [steps = Capture("steps", steps), bias = Capture("bias", t.bias)](
                            Score s, Index, Index h, Index, Index kv) {
    return s + bias(h, kv) + steps(h * 110 + kv);
  };
  expect_untouched(t, {}, "score mod");
  for (const Save save : {Save::lse, Save::nothing}) {
    Trained masked(DType::f32);
    masked.backward();
    masked.options.save = save;
    const Tensor seen(DType::boolean, {130, 109});
    masked.options.mask = [seen = Capture("seen", seen)](Index, Index, Index q, Index kv) {
      return q < 1 || kv < 50 || seen(q, kv);
    };
    expect_untouched(masked, {.captures = {}, .executor = tbb_executor(2)}, "mask");
  }
}

TEST(BackwardInto, EmptyExtentsGiveZeros) {
  struct Shape {
    Dims q, k;
  };
  for (const auto& [q_shape, k_shape] : {Shape{{0, 2, 5, 3}, {0, 2, 4, 3}},
                                         {{0, 2, 5, 3}, {1, 2, 4, 3}},
                                         {{2, 0, 5, 3}, {2, 1, 4, 3}},
                                         {{2, 2, 0, 3}, {2, 1, 4, 3}},
                                         {{2, 2, 5, 3}, {2, 1, 0, 3}}}) {
    for (const Save save : {Save::lse, Save::nothing}) {
      Trained t(DType::f32);
      t.options.save = save;
      t.q = random_tensor(1, DType::f32, q_shape);
      t.k = random_tensor(2, DType::f32, k_shape);
      t.v = random_tensor(3, DType::f32, k_shape);
      t.dout = random_tensor(4, DType::f32, q_shape);
      t.dlse = random_tensor(5, DType::f32, {q_shape[0], q_shape[1], q_shape[2]});
      const Backward made = t.backward();
      const Rooms rooms = rooms_for(t, {2, 1, 0, 3}, 2);
      t.attention().backward_into(rooms.views(), t.inputs(), t.saved(), t.dout, t.dlse);
      rooms.expect(made);
      for (const Room* room : {&rooms.dq, &rooms.dk, &rooms.dv, &rooms.bias}) {
        EXPECT_TRUE(same_bits(contiguous(room->view), Tensor(DType::f32, room->view.shape())));
        expect_gaps_untouched(*room);
      }
    }
  }
}

}  // namespace
}  // namespace treadle
