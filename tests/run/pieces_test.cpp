// Calls whose mods are in pieces: the bits of those whose mods are whole.
#include <gtest/gtest.h>

#include <limits>

#include "direct_run.h"
#include "plain_attention.h"

namespace treadle {
namespace {

using test::DirectRun;
using test::random_tensor;
using test::Rows;
using test::same_bits;

constexpr std::int64_t pieces_length = 150;

TEST(PiecesOfCalls, GiveTheBitsOfTheWhole) {
  const std::int64_t n = pieces_length;
  const Tensor bias = random_tensor(5, DType::f32, {n, n}),
               table = random_tensor(6, DType::f32, {2 * n});
  Tensor ids(DType::i32, {n});
  for (std::int64_t i = 0; i < n; ++i)
    ids.at<std::int32_t>({i}) = static_cast<std::int32_t>(i / 20);
  Options options;
  options.score_mod = [&](Score s, Index, Index h, Index q, Index kv) {
    Float x = s * 0.5 + bias(q, kv) - bias(kv, q) + table(q - kv + n);
    x = tanh(x) * 3.0 + Float(q) * 0.01 + Float(h) + Float(kv % 7) * 0.1;
    return where(ids(q) == ids(kv), x, x * s + table(ids(kv) + ids(q)));
  };
  options.mask = [&](Index, Index, Index q, Index kv) {
    return (q >= kv) & ((ids(q) == ids(kv)) | (kv % 3 == 0) | (q - kv < 30));
  };
  for (const DType type : {DType::f32, DType::f64}) {
    const Tensor q = random_tensor(1, type, {1, 2, n, 24}),
                 k = random_tensor(2, type, {1, 2, n, 24});
    const Tensor v = random_tensor(3, type, {1, 2, n, 16}),
                 dout = random_tensor(4, type, {1, 2, n, 16});
    const ConstView keys = k, values = v;
    const run::TensorKeys source(keys, values);
    DirectRun run(options, type, 24, 16);
    run::Scratch scratch;
    const layout::Layout layout = run.build({1, 2, n, n}, run.plan(plan::most_vectors).width());
    run.cut({.whole = std::numeric_limits<std::int32_t>::max()});
    const Rows whole = run.forward(q, source, layout, scratch);
    const DirectRun::Gradients expected = run.backward(q, source, whole, dout, layout, scratch);
    for (const std::int32_t piece : {1, 5}) {
      run.cut({.whole = 0, .piece = piece});
      const Rows rows = run.forward(q, source, layout, scratch);
      EXPECT_TRUE(same_rows(rows, whole)) << piece;
      const DirectRun::Gradients g = run.backward(q, source, whole, dout, layout, scratch);
      EXPECT_TRUE(same_bits(g.dq, expected.dq)) << piece;
      EXPECT_TRUE(same_bits(g.dk, expected.dk)) << piece;
      EXPECT_TRUE(same_bits(g.dv, expected.dv)) << piece;
    }
  }
}

}  // namespace
}  // namespace treadle
