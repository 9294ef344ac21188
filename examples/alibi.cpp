// A score mod of one's own that reads a captured buffer: ALiBi, a penalty on distance, one slope
// per head. Prints how much the last query takes from each key, by attending to an identity matrix.
#include <treadle/treadle.h>

#include <cstdint>
#include <cstdio>
#include <vector>

using namespace treadle;

namespace {

constexpr std::int64_t heads = 3;
constexpr std::int64_t length = 6;
constexpr std::int64_t dim = 4;

void print_last_row(const Tensor& weights) {
  for (std::int64_t h = 0; h < heads; ++h) {
    std::printf("  head %d:", static_cast<int>(h));
    for (std::int64_t kv = 0; kv < length; ++kv) {
      std::printf(" %.3f", static_cast<double>(weights.at<float>({0, h, length - 1, kv})));
    }
    std::printf("\n");
  }
}

}  // namespace

int main() {
  const Tensor q(DType::f32, {1, heads, length, dim});  // zeros: all plain scores are equal
  const Tensor k(DType::f32, {1, heads, length, dim});
  Tensor v(DType::f32, {1, heads, length, length});  // one row of the identity per key
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t kv = 0; kv < length; ++kv) v.at<float>({0, h, kv, kv}) = 1;
  }

  std::vector<float> data{1.0f, 0.25f, 0.0f};
  const Capture slopes("slopes", View(data.data(), {heads}));
  Options options;
  options.score_mod = [=](Score s, Index, Index h, Index q, Index kv) {
    return s + slopes(h) * (kv - q);
  };
  options.mask = [](Index, Index, Index q, Index kv) { return q >= kv; };
  const Attention alibi = compile(options);
  std::printf("%s\n", alibi.describe().c_str());

  std::printf("slopes 1, 0.25, 0:\n");
  print_last_row(alibi.forward({q, k, v}).out);

  // Other slopes for this call only; this does not recompile.
  std::vector<float> steep{5.0f, 2.0f, 1.0f};
  Call call;
  call.captures = {{"slopes", View(steep.data(), {heads})}};
  std::printf("slopes 5, 2, 1:\n");
  print_last_row(alibi.forward({q, k, v}, call).out);
}
