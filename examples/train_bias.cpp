// Training: a table of relative biases is learned from what another table makes of the same inputs.
// Exits with 1 if the loss does not fall.
#include <treadle/treadle.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <random>
#include <span>

using namespace treadle;

namespace {

constexpr std::int64_t heads = 2;
constexpr std::int64_t length = 24;
constexpr std::int64_t dim = 8;
constexpr std::int64_t reach = 4;  // biases for distances -4 ... 4; beyond, those at the ends
constexpr int steps = 60;
constexpr double rate = 10;

Tensor random_tensor(std::mt19937& random, Dims shape) {
  Tensor tensor(DType::f32, std::move(shape));
  std::normal_distribution<float> normal;
  for (float& x : tensor.data<float>()) x = normal(random);
  return tensor;
}

// The mean square of the difference, and its gradient by `out`.
double loss_of(const Tensor& out, const Tensor& target, Tensor& dout) {
  const std::span<const float> a = out.data<float>();
  const std::span<const float> b = target.data<float>();
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float difference = a[i] - b[i];
    sum += static_cast<double>(difference * difference);
    dout.data<float>()[i] = 2 * difference / static_cast<float>(a.size());
  }
  return sum / static_cast<double>(a.size());
}

}  // namespace

int main() {
  std::mt19937 random(7);
  const Tensor q = random_tensor(random, {1, heads, length, dim});
  const Tensor k = random_tensor(random, {1, heads, length, dim});
  const Tensor v = random_tensor(random, {1, heads, length, dim});
  const Tensor teacher = random_tensor(random, {heads, 2 * reach + 1});
  Tensor table(DType::f32, {heads, 2 * reach + 1});  // zeros, to be learned

  Options options;
  options.score_mod = mods::relative_bias({"table", table}, reach);
  options.mask = mods::causal();
  options.gradients = {"table"};
  const Attention attend = compile(options);

  // The same compiled function, with another table bound to it.
  Call teaching;
  teaching.captures = {{"table", teacher}};
  const Tensor target = attend.forward({q, k, v}, teaching).out;

  double first = 0;
  double last = 0;
  Tensor dout(DType::f32, target.shape());
  for (int step = 0; step <= steps; ++step) {
    const Forward y = attend.forward({q, k, v}, {.lse = true});
    last = loss_of(y.out, target, dout);
    if (step == 0) first = last;
    if (step % 10 == 0) std::printf("step %2d   loss %.1e\n", step, last);
    const Backward gradients = attend.backward({q, k, v}, {y.out, y.lse}, dout);
    const std::span<const float> dtable = gradients.of("table").data<float>();
    for (std::size_t i = 0; i < dtable.size(); ++i) {
      table.data<float>()[i] -= static_cast<float>(rate) * dtable[i];
    }
  }
  return last < 0.05 * first ? 0 : 1;
}
