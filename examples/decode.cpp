// A decoder's loop: one query per step against a cache of its own, on threads of its own.
//
// The whole sequence is run once, as in training. Then it is run again token by token, as when a model
// writes, and every step has the bits of its row.
#include <treadle/treadle.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

using namespace treadle;

namespace {

constexpr std::int64_t heads = 8, key_heads = 2, length = 1500, dim = 64;

// An engine's own threads. A real one would keep them; these live as long as a call.
class Threads : public Executor {
 public:
  explicit Threads(int count) : count_(count) {}
  [[nodiscard]] int threads() const override { return count_; }

  void run(std::int64_t count, const std::function<void(std::int64_t)>& task) override {
    std::atomic<std::int64_t> next = 0;
    std::exception_ptr error;
    std::mutex mutex;
    const auto work = [&] {
      try {
        for (std::int64_t i; (i = next++) < count;) task(i);
      } catch (...) {
        next = count;
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
    };
    std::vector<std::thread> others;
    for (int i = 1; i < count_ && i < count; ++i) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
    if (error) std::rethrow_exception(error);
  }

 private:
  int count_;
};

Tensor random_tensor(const Dims& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Tensor tensor(DType::f32, shape);
  for (float& x : tensor.data<float>()) x = normal(random);
  return tensor;
}

// Tokens first .. first + count of every head of a tensor that holds them all.
ConstView tokens(const Tensor& all, std::int64_t first, std::int64_t count) {
  return ConstView(static_cast<const float*>(ConstView(all).data()) + first * dim,
                   {1, all.size(1), count, dim},
                   {all.size(1) * length * dim, length * dim, dim, 1});
}

}  // namespace

int main() {
  const Tensor q = random_tensor({1, heads, length, dim}, 1);
  const Tensor k = random_tensor({1, key_heads, length, dim}, 2);
  const Tensor v = random_tensor({1, key_heads, length, dim}, 3);

  // One mask for training, prefill and decode: each call says where its first query stands.
  Options options;
  options.mask = patterns::sliding_window({.window = 1024, .sinks = 4});
  const Attention attention = compile(options);
  Call call;
  call.executor = std::make_shared<Threads>(2);
  const Tensor whole = attention.forward({q, k, v}, call).out;

  // No step waits for a compiler.
  const TensorSpec one(DType::f32, {1, heads, 1, dim}), cache(DType::f32, {1, key_heads, 64, dim});
  attention.prepare({{one, cache, cache}}, call);

  Tensor out(DType::f32, {1, heads, 1, dim});
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t step = 0; step < length; ++step) {
    call.q_offsets = {step};
    attention.forward_into({out.view(), std::nullopt, std::nullopt},
                           {tokens(q, step, 1), tokens(k, 0, step + 1), tokens(v, 0, step + 1)},
                           call);
    for (std::int64_t h = 0; h < heads; ++h) {
      const float* row = &whole.data<float>()[static_cast<std::size_t>((h * length + step) * dim)];
      if (std::memcmp(&out.data<float>()[static_cast<std::size_t>(h * dim)], row,
                      dim * sizeof(float)) != 0) {
        std::printf("step %lld, head %lld: other bits than in the whole sequence\n",
                    static_cast<long long>(step), static_cast<long long>(h));
        return 1;
      }
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf(
      "%lld steps, each with the bits of its row in the whole sequence; %.0f steps per second\n",
      static_cast<long long>(length), static_cast<double>(length) / seconds.count());
}
