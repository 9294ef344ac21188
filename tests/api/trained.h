// A forward pass and all that its backward needs, for tests of how backward is called.
//
//   Trained t(DType::f32);                // window mask, score + bias[h, kv]
//   Backward g = t.backward();
//   t.attention().backward_into(views, t.inputs(), t.saved(), t.dout, t.dlse);
#pragma once

#include "base/copy.h"
#include "plain_attention.h"
#include "treadle/treadle.h"

namespace treadle::test {

// Long enough for several tiles, and grouped heads.
struct Trained {
  Tensor q, k, v, dout, dlse, bias;
  Options options;
  Tensor out, lse;

  explicit Trained(DType type, DType bias_type = DType::f32)
      : q(random_tensor(1, type, {2, 4, 130, 8})),
        k(random_tensor(2, type, {2, 2, 110, 8})),
        v(random_tensor(3, type, {2, 2, 110, 6})),
        dout(random_tensor(4, type, {2, 4, 130, 6})),
        dlse(random_tensor(5, type == DType::f64 ? DType::f64 : DType::f32, {2, 4, 130})),
        bias(random_tensor(6, bias_type, {4, 110})) {
    options.mask = mods::window(40);  // the last queries see little
    add_bias(bias);
  }

  void add_bias(const ConstView& view) {
    options.score_mod = [table = Capture("bias", view)](Score s, Index, Index h, Index, Index kv) {
      return s + table(h, kv);
    };
    options.gradients = {"bias"};
  }

  [[nodiscard]] Inputs inputs() const { return {q, k, v}; }
  [[nodiscard]] Saved saved() const { return {out, lse}; }
  [[nodiscard]] Attention attention() const { return compile(options); }

  // forward, then backward.
  Backward backward() {
    const Attention attend = attention();
    Forward y = attend.forward(inputs(), {.lse = true});
    out = std::move(y.out);
    lse = std::move(y.lse);
    return attend.backward(inputs(), saved(), dout, dlse);
  }
};

inline bool same_gradients(const Backward& a, const Backward& b) {
  bool same = same_bits(a.dq, b.dq) && same_bits(a.dk, b.dk) && same_bits(a.dv, b.dv) &&
              a.captures.size() == b.captures.size();
  for (std::size_t i = 0; same && i < a.captures.size(); ++i)
    same = same_bits(a.captures[i].gradient, b.captures[i].gradient);
  return same;
}

inline Tensor contiguous(const ConstView& view) { return base::convert(view, view.dtype()); }

}  // namespace treadle::test
