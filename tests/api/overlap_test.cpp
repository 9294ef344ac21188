// Results written over what is read, or between it.
#include <gtest/gtest.h>

#include "base/copy.h"
#include "expect_error.h"
#include "plain_attention.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

using test::random_tensor;
using test::same_bits;

// Long enough for several tiles and tasks, so that some are done while others are still to read.
class Overlap : public testing::Test {
 protected:
  Tensor q = random_tensor(1, DType::f32, {2, 2, 130, 8});
  Tensor k = random_tensor(2, DType::f32, {2, 2, 130, 8});
  Tensor v = random_tensor(3, DType::f32, {2, 2, 130, 8});
  Options options;

  Overlap() { options.mask = mods::window(60); }
  [[nodiscard]] static Tensor contiguous(const ConstView& view) {
    return base::convert(view, view.dtype());
  }
};

TEST_F(Overlap, OutOverQueriesKeysOrValues) {
  const Attention attend = compile(options);
  const Tensor expected = attend.forward({q, k, v}).out;
  for (const int which : {0, 1, 2}) {
    Tensor inputs[3] = {q.clone(), k.clone(), v.clone()};
    attend.forward_into({inputs[which], {}, {}}, {inputs[0], inputs[1], inputs[2]});
    EXPECT_TRUE(same_bits(inputs[which], expected)) << which;
  }
}

// Shifted by part of a row.
TEST_F(Overlap, OutPartlyOverKeys) {
  Tensor memory(DType::f32, {k.count() + 100});
  const Attention attend = compile(options);
  const Tensor expected = attend.forward({q, k, v}).out;
  for (const std::int64_t shift : {1, 3, 8, 100}) {
    auto* data = memory.data<float>().data();
    const View keys(data, k.shape());
    base::copy(keys, k);
    const View out(data + shift, k.shape());
    attend.forward_into({out, {}, {}}, {q, keys, v});
    EXPECT_TRUE(same_bits(contiguous(out), expected)) << shift;
  }
}

TEST_F(Overlap, RowsOverKeys) {
  const Attention attend = compile(options);
  const Forward expected = attend.forward({q, k, v}, {.lse = true, .max = true});
  Tensor keys = k.clone();
  Tensor values = v.clone();
  const View lse(keys.data<float>().data() + 7, {2, 2, 130});
  const View max(values.data<float>().data(), {2, 2, 130}, {4, 2, 8});
  Tensor out(DType::f32, q.shape());
  attend.forward_into({out, lse, max}, {q, keys, values});
  EXPECT_TRUE(same_bits(out, expected.out));
  EXPECT_TRUE(same_bits(contiguous(lse), expected.lse));
  EXPECT_TRUE(same_bits(contiguous(max), expected.max));
}

TEST_F(Overlap, OutOverACapture) {
  const Tensor bias = random_tensor(4, DType::f32, {130, 130});
  Tensor memory(DType::f32, {q.count() + bias.count()});
  const View table(memory.data<float>().data() + 50, {130, 130});
  base::copy(table, bias);
  options.score_mod = [table = Capture("bias", ConstView(table))](
                          Score s, Index, Index, Index m, Index n) { return s + table(m, n); };
  const Attention attend = compile(options);
  const Tensor expected = attend.forward({q, k, v}).out;
  const View out(memory.data<float>().data(), q.shape());
  attend.forward_into({out, {}, {}}, {q, k, v});
  EXPECT_TRUE(same_bits(contiguous(out), expected));
}

TEST_F(Overlap, OutOverWhatTheMaskReads) {
  Tensor memory(DType::f32, q.shape());
  const View ids(reinterpret_cast<std::int32_t*>(memory.data<float>().data()) + 11, Dims{130});
  for (std::int64_t i = 0; i < 130; ++i)
    ids.at<std::int32_t>({i}) = static_cast<std::int32_t>(i / 37);
  options.mask = mods::document(Capture("ids", ConstView(ids)));
  const Attention attend = compile(options);
  const Tensor expected = attend.forward({q, k, v}).out;
  attend.forward_into({memory, {}, {}}, {q, k, v});
  EXPECT_TRUE(same_bits(memory, expected));
}

// out, lse and max of a row side by side.
TEST_F(Overlap, ResultsInterleaved) {
  const Attention attend = compile(options);
  const Forward expected = attend.forward({q, k, v}, {.lse = true, .max = true});
  Tensor memory(DType::f32, {2, 130, 2, 10});
  float* data = memory.data<float>().data();
  const View out(data, {2, 2, 130, 8}, {2600, 10, 20, 1});
  const View lse(data + 8, {2, 2, 130}, {2600, 10, 20});
  const View max(data + 9, {2, 2, 130}, {2600, 10, 20});
  attend.forward_into({out, lse, max}, {q, k, v});
  EXPECT_TRUE(same_bits(contiguous(out), expected.out));
  EXPECT_TRUE(same_bits(contiguous(lse), expected.lse));
  EXPECT_TRUE(same_bits(contiguous(max), expected.max));
}

// Out's dim outermost, backwards, or every second element.
TEST_F(Overlap, OutOfOddStrides) {
  for (const DType type : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor a = base::convert(q, type), b = base::convert(k, type);
    const Attention attend = compile(options);
    const Tensor expected = attend.forward({a, b, b}).out;
    const std::int64_t rows = 2 * 2 * 130;
    Tensor memory(type, {2 * rows * 8});
    auto* data = static_cast<std::byte*>(memory.view().data());
    const auto at = [&](std::int64_t element) {
      return data + element * static_cast<std::int64_t>(size_of(type));
    };
    for (const View& out : {View(at(0), type, {2, 2, 130, 8}, {260, 130, 1, rows}),
                            View(at(8 * rows - 1), type, {2, 2, 130, 8}, {-2080, -1040, -8, -1}),
                            View(at(7), type, {2, 2, 130, 8}, {2080, 1040, 8, -1}),
                            View(at(0), type, {2, 2, 130, 8}, {4160, 2080, 16, 2})}) {
      attend.forward_into({out, {}, {}}, {a, b, b});
      EXPECT_TRUE(same_bits(contiguous(out), expected)) << to_string(out.strides());
    }
  }
}

TEST_F(Overlap, AFailedCallHasWrittenNothing) {
  std::vector<float> table(100);
  options.score_mod = [table = Capture("table", View(table.data(), {100}))](
                          Score s, Index, Index, Index m, Index) { return s + table(m); };
  Tensor out = random_tensor(9, DType::f32, q.shape());
  const Tensor before = out.clone();
  EXPECT_ERROR(
      compile(options).forward_into({out, {}, {}}, {q, k, v}, {.executor = serial_executor()}),
      "score mod: table: index 100 along dimension 0 is outside its length 100, at (b 0, "
      "h 0, q 100, kv 41)");
  EXPECT_TRUE(same_bits(out, before));
}

}  // namespace
}  // namespace treadle
