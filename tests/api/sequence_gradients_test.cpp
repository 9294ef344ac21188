// Gradients of packed sequences: those of calls of their own, and their sums.
#include <gtest/gtest.h>

#include "sequence_batch.h"

namespace treadle {
namespace {

using test::random_tensor;
using test::same_bits;
using test::SequenceBatch;

// Whether backward computes the forward pass again.
class GradientsOfSequences : public testing::TestWithParam<bool> {};

TEST_P(GradientsOfSequences, AreThoseOfCallsOfTheirOwn) {
  const bool recomputes = GetParam();
  const Tensor slopes = random_tensor(9, DType::f64, {4});
  Options options;
  options.mask = parse("kv <= q && (q - kv < 40 || kv < 4)");
  options.score_mod = parse("score + slopes[h] * 0.01 * (kv - q)", {{"slopes", slopes}});
  options.gradients = {"slopes"};
  options.save = recomputes ? Save::nothing : Save::lse;
  const Attention attention = compile(options);
  const SequenceBatch batch(5, {{90, 90}, {0, 30}, {1, 1}, {7, 200}, {0, 0}}, 4, 2, 16, 24,
                            {DType::f64, DType::f64, DType::f64});
  Call call{.lse = true};
  const Tensor sinks = random_tensor(2, DType::f64, {4});
  call.sinks = sinks;
  const Forward y = attention.forward(batch.packed(), call);
  const Tensor dout = random_tensor(7, DType::f64, y.out.shape());
  const Tensor dlse = random_tensor(8, DType::f64, y.lse.shape());
  const Saved saved = recomputes ? Saved{} : Saved{y.out, y.lse};
  const Backward g = attention.backward(batch.packed(), saved, dout, ConstView(dlse), call);
  std::vector<double> dslopes(4), dsinks(4);
  for (std::size_t s = 0; s < batch.all.size(); ++s) {
    const SequenceBatch::One& one = batch.all[s];
    Call own = call;
    own.q_offsets = {one.k.size(2) - one.q.size(2)};
    const Forward own_y = attention.forward({one.q, one.k, one.v}, own);
    const Saved own_saved = recomputes ? Saved{} : Saved{own_y.out, own_y.lse};
    const Tensor own_dout = batch.result(dout, s), own_dlse = batch.result(dlse, s);
    const Backward wanted =
        attention.backward({one.q, one.k, one.v}, own_saved, own_dout, ConstView(own_dlse), own);
    const auto keys = [&](const Tensor& packed) {
      return base::convert(SequenceBatch::rows(ConstView(packed), batch.k_starts, s), DType::f64);
    };
    EXPECT_TRUE(same_bits(batch.result(g.dq, s), wanted.dq)) << s;
    EXPECT_TRUE(same_bits(keys(g.dk), wanted.dk)) << s;
    EXPECT_TRUE(same_bits(keys(g.dv), wanted.dv)) << s;
    for (std::size_t h = 0; h < 4; ++h) {
      dslopes[h] += wanted.of("slopes").data<double>()[h];
      dsinks[h] += wanted.dsinks.data<double>()[h];
    }
  }
  for (std::size_t h = 0; h < 4; ++h) {
    EXPECT_NEAR(g.of("slopes").data<double>()[h], dslopes[h], 1e-12);
    EXPECT_NEAR(g.dsinks.data<double>()[h], dsinks[h], 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(Recomputing, GradientsOfSequences, testing::Bool(),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace treadle
