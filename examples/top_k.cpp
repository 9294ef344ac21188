// Attention to chosen blocks of keys, as in MoBA and NSA: each block of queries scores the blocks of
// keys by their means, keeps the best ones, and attends to those alone, forward and backward. The
// text has topics, and blocks ask for a few of them, so little is lost. Exits with 1 if much is.
#include <treadle/treadle.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <vector>

using namespace treadle;

namespace {

constexpr std::int64_t heads = 4, key_heads = 2;
constexpr std::int64_t length = 4096, dim = 64;
constexpr std::int64_t block = 64, blocks = length / block;
constexpr std::int64_t kept = 8;   // blocks of keys for each block of queries
constexpr std::int64_t asked = 3;  // topics that a block of queries asks for

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// Each block of keys is about a topic. Each block of queries asks for its own and some earlier ones.
void write_text(Tensor& q, Tensor& k, Tensor& v) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> topics(at(blocks * dim));
  for (float& x : topics) x = normal(random);
  for (Tensor* tensor : {&q, &k, &v}) {
    for (float& x : tensor->data<float>()) x = normal(random);
  }
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      std::vector<std::int64_t> wanted{b};
      while (std::ssize(wanted) < asked)
        wanted.push_back(std::uniform_int_distribution<std::int64_t>(0, b)(random));
      for (std::int64_t i = 0; i < block * dim; ++i) {
        const std::int64_t row = b * block + i / dim, d = i % dim;
        if (h < key_heads) k.at<float>({0, h, row, d}) += 2 * topics[at(b * dim + d)];
        for (const std::int64_t topic : wanted)
          q.at<float>({0, h, row, d}) += topics[at(topic * dim + d)];
      }
    }
  }
}

// The mean of each block, [heads, blocks, dim].
std::vector<float> pooled(const Tensor& x) {
  std::vector<float> means(at(x.size(1) * blocks * dim));
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const std::int64_t row = i / dim;  // of all heads
    means[at(row / block * dim + i % dim)] += x.data<float>()[at(i)] / block;
  }
  return means;
}

struct TopK {
  Tensor indices{DType::i32, {1, heads, blocks, kept}};
  Tensor counts{DType::i32, {1, heads, blocks}};
};

// The own block, and of the earlier ones those whose mean is nearest to what the queries ask for.
TopK choose(const Tensor& q, const Tensor& k) {
  const std::vector<float> queries = pooled(q), keys = pooled(k);
  TopK top;
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      std::vector<std::pair<float, std::int64_t>> scored;
      for (std::int64_t other = 0; other < b; ++other) {
        float score = 0;
        for (std::int64_t d = 0; d < dim; ++d) {
          score += queries[at((h * blocks + b) * dim + d)] *
                   keys[at((h / (heads / key_heads) * blocks + other) * dim + d)];
        }
        scored.emplace_back(score, other);
      }
      std::ranges::sort(scored, std::greater());
      scored.resize(std::min<std::size_t>(scored.size(), kept - 1));
      scored.emplace_back(0.0f, b);
      for (std::size_t i = 0; i < scored.size(); ++i) {
        top.indices.at<std::int32_t>({0, h, b, static_cast<std::int64_t>(i)}) =
            static_cast<std::int32_t>(scored[i].second);
      }
      top.counts.at<std::int32_t>({0, h, b}) = static_cast<std::int32_t>(scored.size());
    }
  }
  return top;
}

// The size of the difference, as a part of the size.
double difference(const Tensor& a, const Tensor& b) {
  double apart = 0, size = 0;
  for (std::size_t i = 0; i < b.data<float>().size(); ++i) {
    const double x = static_cast<double>(a.data<float>()[i]),
                 y = static_cast<double>(b.data<float>()[i]);
    apart += (x - y) * (x - y);
    size += y * y;
  }
  return std::sqrt(apart / size);
}

struct Trained {
  Forward y;
  Backward g;
  double forward_ms = 0, backward_ms = 0;
};

// Forward and backward, twice: kernels are compiled in the first run, the second is timed.
Trained train(const Attention& attend, const Inputs& inputs, const ConstView& dout,
              const Layout& layout) {
  const Call call{.layout = layout, .lse = true};
  Trained result;
  for (int run = 0; run < 2; ++run) {
    const auto start = std::chrono::steady_clock::now();
    result.y = attend.forward(inputs, call);
    const auto middle = std::chrono::steady_clock::now();
    result.g = attend.backward(inputs, {result.y.out, result.y.lse}, dout, {}, call);
    const auto end = std::chrono::steady_clock::now();
    result.forward_ms = std::chrono::duration<double, std::milli>(middle - start).count();
    result.backward_ms = std::chrono::duration<double, std::milli>(end - middle).count();
  }
  return result;
}

}  // namespace

int main() {
  Tensor q(DType::f32, {1, heads, length, dim});
  Tensor k(DType::f32, {1, key_heads, length, dim});
  Tensor v(DType::f32, {1, key_heads, length, dim});
  write_text(q, k, v);

  Options options;
  options.mask = mods::causal();
  const Attention causal = compile(options);
  const Layout all = causal.layout({q, k, v});
  const TopK top = choose(q, k);
  const Layout chosen = causal.layout(KeyLists{block, block, top.indices, top.counts}, {q, k, v});

  Tensor dout(DType::f32, q.shape());
  std::ranges::fill(dout.data<float>(), 1.0f);
  const Trained dense = train(causal, {q, k, v}, dout, all);
  const Trained sparse = train(causal, {q, k, v}, dout, chosen);

  std::printf("causal, %d tokens: %.1f %% of all pairs\n", static_cast<int>(length),
              100 * all.density());
  std::printf("top %d of %d blocks: %.1f %%\n", static_cast<int>(kept), static_cast<int>(blocks),
              100 * chosen.density());
  const double out = difference(sparse.y.out, dense.y.out);
  const double dv = difference(sparse.g.dv, dense.g.dv);
  std::printf("difference of out %.3f, of dv %.3f\n", out, dv);
  std::printf("forward  %6.1f ms -> %5.1f ms\n", dense.forward_ms, sparse.forward_ms);
  std::printf("backward %6.1f ms -> %5.1f ms\n", dense.backward_ms, sparse.backward_ms);
  return out < 0.1 && dv < 0.1 ? 0 : 1;
}
