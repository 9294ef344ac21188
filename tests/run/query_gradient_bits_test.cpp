// The promise of equal bits for dQ, which is that of a row of the forward pass: it does not depend
// on tiles, query orders, neighbours, or on what else is in the batch.
#include <gtest/gtest.h>

#include "direct_run.h"
#include "plain_attention.h"

namespace treadle {
namespace {

using layout::Order;
using test::DirectRun;
using test::random_tensor;
using test::Rows;

struct QueryCase {
  const char* name;
  DType dtype;
  const char* score;
  const char* mask;

  friend void PrintTo(const QueryCase& c, std::ostream* out) { *out << c.name; }
};

const QueryCase query_cases[] = {
    {"plain", DType::f32, "score", "true"},
    {"causal", DType::f32, "score", "q + 1100 >= kv"},
    {"bias_window", DType::f32, "score + 0.01 * float(kv - q) * float(h + 1)",
     "abs(q + 600 - kv) < 700"},
    {"soft_cap", DType::f32, "5.0 * tanh(score / 5.0)",
     "(q * 7 + kv * 3 + h + b) % 5 < 3 && q != 11"},
    {"strided", DType::f32, "score", "(q - kv) % 17 == 0"},
    {"bf16", DType::bf16, "score * 0.5", "(q + kv // 3) % 4 != 1"},
    {"f64", DType::f64, "5.0 * tanh(score / 5.0)", "q + 1100 >= kv"},
};

// Two batches, grouped heads, two chunks of keys.
class QueryGradientBits : public testing::TestWithParam<QueryCase> {
 protected:
  static constexpr std::int64_t dim = 9, value_dim = 13;

  const QueryCase& c = GetParam();
  Tensor q = random_tensor(1, c.dtype, {2, 4, 110, dim});
  Tensor k = random_tensor(2, c.dtype, {2, 2, 1300, dim});
  Tensor v = random_tensor(3, c.dtype, {2, 2, 1300, value_dim});
  Tensor dout = random_tensor(4, c.dtype, {2, 4, 110, value_dim});
  layout::Extent extent{2, 4, 110, 1300};
  DirectRun run{{.score_mod = parse(c.score), .mask = parse(c.mask)}, c.dtype, dim, value_dim};
  run::Scratch scratch;

  Tensor dq(const layout::Layout& layout, Executor& executor = *serial_executor()) {
    const ConstView keys = k, values = v;
    const run::TensorKeys source(keys, values);
    const Rows rows = run.forward(q, source, layout, scratch, executor);
    return run.backward(q, source, rows, dout, layout, scratch, executor).dq;
  }
};

INSTANTIATE_TEST_SUITE_P(Cases, QueryGradientBits, testing::ValuesIn(query_cases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(QueryGradientBits, AnyTileHeight) {
  const Tensor expected = dq(run.build(extent, 24));
  for (const std::int64_t height : {1, 7, 16, 48, 100})
    EXPECT_TRUE(test::same_bits(dq(run.build(extent, height), *tbb_executor(2)), expected))
        << height;
}

TEST_P(QueryGradientBits, AnyQueryOrder) {
  const Tensor expected = dq(run.build(extent, 24));
  using Kind = Order::Kind;
  for (const Order& order :
       {Order{.kind = Kind::blocks, .modulus = 17}, Order{.kind = Kind::residue, .modulus = 3},
        Order{.kind = Kind::residue, .modulus = 40},
        Order{.kind = Kind::rectangle, .modulus = 8, .rows = 3, .columns = 5}})
    EXPECT_TRUE(test::same_bits(dq(run.build(extent, 20, order), *tbb_executor(2)), expected))
        << to_text(order);
}

// One element of an axis, which stays, with length 1.
Tensor one_of(const Tensor& tensor, std::size_t axis, std::int64_t index) {
  const ConstView view = tensor;
  Dims shape = view.shape();
  shape[axis] = 1;
  const auto* data =
      static_cast<const std::byte*>(view.data()) +
      index * view.strides()[axis] * static_cast<std::int64_t>(size_of(view.dtype()));
  return base::convert(ConstView(data, view.dtype(), shape, view.strides()), view.dtype());
}

// axis 0: each sequence of a batch, 2: each of some queries. The mask may not look at either.
void expect_same_alone(std::size_t axis, const std::vector<std::int64_t>& indices) {
  const Attention attention =
      compile({.score_mod = parse("score + 0.01 * float(kv) * float(h + 1)"),
               .mask = parse("kv % 7 != 3")});
  const Tensor q = random_tensor(1, DType::f32, {3, 2, 61, 16});
  const Tensor k = random_tensor(2, DType::f32, {3, 2, 1300, 16});
  const Tensor dout = random_tensor(3, DType::f32, {3, 2, 61, 16});
  const auto dq = [&](const Tensor& queries, const Tensor& keys, const Tensor& slopes) {
    const Inputs inputs{queries, keys, keys};
    const Forward y = attention.forward(inputs, {.lse = true});
    return attention.backward(inputs, {y.out, y.lse}, slopes).dq;
  };
  const Tensor all = dq(q, k, dout);
  for (const std::int64_t i : indices) {
    const Tensor keys = axis == 0 ? one_of(k, 0, i) : k.clone();
    EXPECT_TRUE(
        test::same_bits(dq(one_of(q, axis, i), keys, one_of(dout, axis, i)), one_of(all, axis, i)))
        << i;
  }
}

TEST(QueryGradientBitsOf, ASequenceAloneAndInABatch) { expect_same_alone(0, {0, 1, 2}); }

TEST(QueryGradientBitsOf, AQueryAloneAndAmongOthers) { expect_same_alone(2, {0, 1, 23, 24, 60}); }

}  // namespace
}  // namespace treadle
