// One layer of a Sparse Transformer, trained: strided attention between projections that are plain
// loops, on [time, width] tensors, learns to give what another such layer gives. Exits with 1 if a
// step does not lower the loss.
#include <treadle/treadle.h>

#include <cstddef>
#include <cstdio>
#include <random>
#include <span>
#include <utility>

using namespace treadle;

namespace {

constexpr std::int64_t length = 128, heads = 4, width = 32;
constexpr int steps = 5;
constexpr float rate = 2;

// Every 16th position, back to the beginning; nothing but q, k and v is kept for backward.
const sparse_transformer::BlocksparseArguments strided{.heads = heads,
                                                       .attn_mode = "strided",
                                                       .local_attn_ctx = 16,
                                                       .blocksize = 8,
                                                       .recompute = true};

Tensor random_matrix(std::mt19937& random, std::int64_t rows, float size) {
  Tensor matrix(DType::f32, {rows, width});
  std::normal_distribution<float> normal(0, size);
  for (float& x : matrix.data<float>()) x = normal(random);
  return matrix;
}

// x w, with the gradients of it below. All of them have `width` columns.
Tensor times(const Tensor& x, const Tensor& w) {
  Tensor y(DType::f32, x.shape());
  for (std::int64_t t = 0; t < x.size(0); ++t)
    for (std::int64_t i = 0; i < width; ++i)
      for (std::int64_t o = 0; o < width; ++o)
        y.at<float>({t, o}) += x.at<float>({t, i}) * w.at<float>({i, o});
  return y;
}

// For dy = the gradient by x w: adds to the gradient by x, and moves w down the one by w.
void learn(const Tensor& x, Tensor& w, const Tensor& dy, Tensor* dx) {
  Tensor dw(DType::f32, w.shape());
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    for (std::int64_t i = 0; i < width; ++i) {
      for (std::int64_t o = 0; o < width; ++o) {
        const float slope = dy.at<float>({t, o});
        dw.at<float>({i, o}) += x.at<float>({t, i}) * slope;
        if (dx != nullptr) dx->at<float>({t, i}) += w.at<float>({i, o}) * slope;
      }
    }
  }
  for (std::size_t i = 0; i < w.data<float>().size(); ++i)
    w.data<float>()[i] -= rate * dw.data<float>()[i];
}

// [time, width] as attention wants it: [batch, time, heads * dim]. No copy.
ConstView one_batch(const Tensor& x) { return {x.data<float>().data(), {1, length, width}}; }

Tensor without_batch(const Tensor& x) {
  Tensor rows(DType::f32, {length, width});
  for (std::size_t i = 0; i < x.data<float>().size(); ++i)
    rows.data<float>()[i] = x.data<float>()[i];
  return rows;
}

struct Layer {
  Tensor q, k, v, out;  // projections

  Layer(std::mt19937& random, float size)
      : q(random_matrix(random, width, size)),
        k(random_matrix(random, width, size)),
        v(random_matrix(random, width, size)),
        out(random_matrix(random, width, size)) {}
};

// The layer's output for x; in training also a step down the mean square of its distance from a
// target, which is returned.
std::pair<Tensor, double> run(Layer& layer, const Tensor& x, const Tensor* target) {
  const auto attend = sparse_transformer::blocksparse_attention(strided);
  const Tensor q = times(x, layer.q), k = times(x, layer.k), v = times(x, layer.v);
  const Inputs inputs{one_batch(q), one_batch(k), one_batch(v)};
  const Tensor seen = without_batch(attend.forward(inputs).out);
  Tensor y = times(seen, layer.out);
  if (target == nullptr) return {std::move(y), 0};

  double loss = 0;
  Tensor dy(DType::f32, y.shape());
  const auto count = static_cast<float>(y.count());
  for (std::size_t i = 0; i < y.data<float>().size(); ++i) {
    const float difference = y.data<float>()[i] - target->data<float>()[i];
    loss += static_cast<double>(difference * difference / count);
    dy.data<float>()[i] = 2 * difference / count;
  }
  Tensor dseen(DType::f32, seen.shape());
  learn(seen, layer.out, dy, &dseen);
  const Backward g = attend.backward(inputs, {}, one_batch(dseen));
  learn(x, layer.q, without_batch(g.dq), nullptr);
  learn(x, layer.k, without_batch(g.dk), nullptr);
  learn(x, layer.v, without_batch(g.dv), nullptr);
  return {std::move(y), loss};
}

}  // namespace

int main() {
  std::mt19937 random(7);
  const Tensor x = random_matrix(random, length, 1);
  Layer teacher(random, 0.2F), layer(random, 0.2F);
  const Tensor target = run(teacher, x, nullptr).first;

  double before = 0;
  bool falls = true;
  for (int step = 0; step <= steps; ++step) {
    const double loss = run(layer, x, &target).second;
    std::printf("after %d steps   loss %.4f\n", step, loss);
    falls = falls && (step == 0 || loss < before);
    before = loss;
  }
  return falls ? 0 : 1;
}
