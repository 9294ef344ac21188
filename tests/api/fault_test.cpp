// Every allocation of a warm call fails in turn, once or from then on: the call throws
// std::bad_alloc and has written nothing, or succeeds; the next call is right. The same for calls
// of a paged cache.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <iostream>
#include <new>
#include <numeric>
#include <string>
#include <tuple>

#include "faults.h"
#include "fuzz.h"
#include "plain_attention.h"
#include "treadle/attention.h"
#include "treadle/mods.h"
#include "treadle/paged_kv.h"
#include "treadle/sequences.h"

namespace treadle {
namespace {

using test::faults;
using test::random_tensor;

// How results lie in memory: written in place, or through private memory.
enum class Placed : std::uint8_t { direct, strided };

// A call of some results, that can be made again and again.
class Faulty {
 public:
  explicit Faulty(Placed placed) : placed_(placed) {
    Options options;
    options.score_mod = [slopes = Capture("slopes", ConstView(slopes_)),
                         bias = Capture("bias", ConstView(bias_))](Score s, Index, Index h, Index q,
                                                                   Index kv) {
      return s + slopes(h) * (q - kv) * 0.001 + bias(kv);
    };
    options.mask = [ids = Capture("ids", ConstView(ids_))](Index, Index, Index q, Index kv) {
      return ids(kv) != q % 5;
    };
    options.gradients = {"slopes", "bias"};
    attend_ = std::make_unique<Attention>(compile(options));
    std::iota(ids_.data<std::int32_t>().begin(), ids_.data<std::int32_t>().end(), 0);
    for (std::int32_t& id : ids_.data<std::int32_t>()) id /= 600;
    for (std::size_t i = 0; i < shapes_.size(); ++i) {
      Dims wide = shapes_[i];
      if (placed == Placed::strided) wide.back() *= 2;
      results_.emplace_back(DType::f32, wide);
    }
    const Forward y = attend_->forward({q_, k_, v_}, {.lse = true});
    out_ = y.out.clone();
    lse_ = y.lse.clone();
  }

  [[nodiscard]] Layout layout() const { return attend_->layout({q_, k_, v_}); }
  void forward(const Call& call) {
    attend_->forward_into({result(0), result(1), result(2)}, {q_, k_, v_}, call);
  }
  void backward(const Call& call) {
    attend_->backward_into(
        {result(3), result(4), result(5), {{"slopes", result(6)}, {"bias", result(7)}}},
        {q_, k_, v_}, {out_, lse_}, dout_, std::nullopt, call);
  }

  // Bytes, compared by memcmp: loops of a test are slow.
  using Bytes = std::vector<std::vector<std::byte>>;
  void forget() {
    for (Tensor& tensor : results_) std::memset(tensor.view().data(), 0x5a, bytes_of(tensor));
  }
  [[nodiscard]] Bytes copy() {
    Bytes all;
    for (Tensor& tensor : results_) {
      const auto* data = static_cast<const std::byte*>(tensor.view().data());
      all.emplace_back(data, data + bytes_of(tensor));
    }
    return all;
  }
  [[nodiscard]] bool equal(const Bytes& expected) {
    for (std::size_t i = 0; i < results_.size(); ++i)
      if (std::memcmp(results_[i].view().data(), expected[i].data(), expected[i].size()) != 0)
        return false;
    return true;
  }

 private:
  static std::size_t bytes_of(const Tensor& tensor) {
    return static_cast<std::size_t>(tensor.count()) * size_of(tensor.dtype());
  }
  View result(std::size_t i) {
    Dims strides = contiguous_strides(results_[i].shape());
    if (placed_ == Placed::strided) strides.back() = 2;
    return {results_[i].view().data(), DType::f32, shapes_[i], strides};
  }

  // Few queries and many keys: with two threads tasks are cut.
  Placed placed_;
  Tensor q_ = random_tensor(1, DType::f32, {1, 2, 40, 8});
  Tensor k_ = random_tensor(2, DType::f32, {1, 1, 3000, 8});
  Tensor v_ = random_tensor(3, DType::f32, {1, 1, 3000, 8});
  Tensor dout_ = random_tensor(4, DType::f32, {1, 2, 40, 8});
  Tensor slopes_ = random_tensor(5, DType::f32, {2});
  Tensor bias_ = random_tensor(6, DType::f32, {3000});
  Tensor ids_ = Tensor(DType::i32, {3000});
  std::vector<Dims> shapes_{{1, 2, 40, 8},   {1, 2, 40},      {1, 2, 40}, {1, 2, 40, 8},
                            {1, 1, 3000, 8}, {1, 1, 3000, 8}, {2},        {3000}};
  std::vector<Tensor> results_;  // out, lse, max, dq, dk, dv, of slopes, of bias
  std::unique_ptr<Attention> attend_;
  Tensor out_, lse_;
};

struct FaultCase {
  Placed placed;
  int threads;
  bool forward, lasting;
  bool layout = true;  // given; else the call builds it, with a thousand allocations more
};

void PrintTo(const FaultCase& c, std::ostream* out) {
  *out << (c.forward ? "forward" : "backward") << (c.placed == Placed::direct ? "" : "Strided")
       << c.threads << (c.lasting ? "FromThenOn" : "Once") << (c.layout ? "" : "AndLayout");
}

std::vector<FaultCase> fault_cases() {
  std::vector<FaultCase> cases;
  for (const Placed placed : {Placed::direct, Placed::strided})
    for (const int threads : {1, 2})
      for (const bool forward : {true, false})
        for (const bool lasting : {true, false})
          cases.push_back({placed, threads, forward, lasting});
  for (const bool lasting : {true, false})
    cases.push_back({Placed::direct, 2, true, lasting, false});
  return cases;
}

class FaultyCalls : public testing::TestWithParam<FaultCase> {};
INSTANTIATE_TEST_SUITE_P(Of, FaultyCalls, testing::ValuesIn(fault_cases()),
                         testing::PrintToStringParamName());

TEST_P(FaultyCalls, HaveWrittenNothing) {
  const FaultCase& c = GetParam();
  Faulty faulty(c.placed);
  Call call{.executor = tbb_executor(c.threads)};
  if (c.layout) call.layout = faulty.layout();
  const auto run = [&] { c.forward ? faulty.forward(call) : faulty.backward(call); };
  faulty.forget();
  const Faulty::Bytes forgotten = faulty.copy();
  run();
  const Faulty::Bytes expected = faulty.copy();
  faults.arm(-1, false);
  run();
  const std::int64_t allocations = faults.disarm();
  EXPECT_GT(allocations, 20);
  const bool full = test::fuzz_size() == test::FuzzSize::full;
  const std::int64_t step = full ? 1 : c.layout ? 3 : 31;
  std::int64_t failed = 0;
  for (std::int64_t n = 0; n < allocations + step; n += step) {
    faulty.forget();
    bool threw = false;
    faults.arm(n, c.lasting);
    try {
      run();
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    faults.disarm();
    failed += threw ? 1 : 0;
    ASSERT_TRUE(faulty.equal(threw ? forgotten : expected)) << "allocation " << n;
    if (!threw) continue;
    run();
    ASSERT_TRUE(faulty.equal(expected)) << "after allocation " << n;
  }
  std::cout << allocations << " allocations, of which " << failed << " were looked at and failed\n";
  EXPECT_GT(failed, allocations / step / 2);
}

// A cache with two sequences that share a page, and its memory.
struct FaultyCache {
  Tensor k{DType::e4m3, {12, 2, 4, 8}}, v{DType::bf16, {12, 2, 4, 8}};
  Tensor scales{DType::f32, {12, 2, 4}};
  PagedKV cache{k, v, {.sequences = 4, .pages_per_sequence = 6, .k_scales = scales.view()}};
  Tensor rows = random_tensor(1, DType::f32, {11, 2, 8});
  std::vector<std::int64_t> starts{0, 5, 11};

  FaultyCache() {
    cache.append(cache.add(), rows, rows);
    cache.fork(0, 6);
  }
  [[nodiscard]] auto state() {
    const auto bytes = [](Tensor& tensor) {
      return std::string(static_cast<const char*>(tensor.view().data()),
                         static_cast<std::size_t>(tensor.count()) * size_of(tensor.dtype()));
    };
    std::vector<std::vector<std::int32_t>> pages;
    std::vector<std::int64_t> numbers{cache.sequences(), cache.free_pages()};
    for (std::int64_t slot = 0; slot < cache.sequences(); ++slot) {
      pages.push_back(cache.pages_of(slot));
      numbers.push_back(cache.length(slot));
    }
    return std::tuple(bytes(k), bytes(v), bytes(scales), pages, numbers);
  }
};

TEST(FaultyCaches, StayAsTheyWere) {
  const std::vector<std::function<void(FaultyCache&)>> calls{
      [](FaultyCache& c) { c.cache.add(); },
      [](FaultyCache& c) { c.cache.fork(1); },
      [](FaultyCache& c) { c.cache.append(1, c.rows, c.rows); },
      [](FaultyCache& c) {
        c.cache.append({1, 0}, ConstView(c.starts.data(), {3}), c.rows, c.rows);
      },
      [](FaultyCache& c) { (void)c.cache.batch({0, 1}); },
      [](FaultyCache& c) { c.cache.trim(0, 2); },
      [](FaultyCache& c) { c.cache.free(1); }};
  std::vector<int> failed;
  for (const auto& call : calls) {
    FaultyCache expected;
    call(expected);
    failed.push_back(0);
    for (std::int64_t n = 0;; ++n) {
      FaultyCache faulty;
      const auto before = faulty.state();
      bool threw = false;
      faults.arm(n, true);
      try {
        call(faulty);
      } catch (const std::bad_alloc&) {
        threw = true;
      }
      faults.disarm();
      ASSERT_TRUE(faulty.state() == (threw ? before : expected.state())) << "allocation " << n;
      if (!threw) break;
      ++failed.back();
      call(faulty);
      ASSERT_TRUE(faulty.state() == expected.state()) << "after allocation " << n;
    }
  }
  for (std::size_t i = 1; i < 5; ++i) EXPECT_GT(failed[i], 0) << "call " << i;
  EXPECT_EQ(failed[5], 0);  // what gives back needs nothing
  EXPECT_EQ(failed[6], 0);
}

// Single tokens that share pages, and a prompt, in one call.
TEST(FaultySequences, HaveWrittenNothing) {
  constexpr std::int64_t sequences = 4, page_size = 16, longest = 100;
  const Tensor q = random_tensor(1, DType::f32, {43, 2, 8});
  const Tensor k = random_tensor(2, DType::f32, {4 * longest, 1, page_size, 8});
  const Tensor v = random_tensor(3, DType::f32, {4 * longest, 1, page_size, 8});
  Tensor starts(DType::i32, {sequences + 1}), table(DType::i32, {sequences, longest}),
      lengths(DType::i32, {sequences});
  for (std::int32_t s = 0; s < sequences; ++s) {
    const auto at = static_cast<std::size_t>(s);
    starts.data<std::int32_t>()[at + 1] = s == 3 ? 43 : s + 1;
    lengths.data<std::int32_t>()[at] = 1500 - 7 * s;
    for (std::int32_t p = 0; p < longest; ++p)
      table.at<std::int32_t>({s, p}) = p < 80 && s < 3 ? p : s * 100 + p;
  }
  Options options;
  options.mask = [](Index, Index, Index query, Index kv) { return kv <= query; };
  const Attention attend = compile(options);
  Tensor out(DType::f32, {43, 2, 8});
  const auto bytes = static_cast<std::size_t>(out.count()) * sizeof(float);
  const Call call{.executor = tbb_executor(2)};
  const auto run = [&] {
    attend.forward_into({out.view(), std::nullopt, std::nullopt},
                        {q, starts, PagedKeys{k, v, table, lengths}}, call);
  };
  const auto forget = [&] { std::memset(out.view().data(), 0x5a, bytes); };
  forget();
  const Tensor forgotten = out.clone();
  run();
  run();
  const Tensor expected = out.clone();
  for (const bool lasting : {false, true}) {
    faults.arm(-1, false);
    run();
    const std::int64_t allocations = faults.disarm();
    for (std::int64_t n = 0; n < allocations; ++n) {
      forget();
      bool threw = false;
      faults.arm(n, lasting);
      try {
        run();
      } catch (const std::bad_alloc&) {
        threw = true;
      }
      faults.disarm();
      ASSERT_TRUE(test::same_bits(out, threw ? forgotten : expected)) << "allocation " << n;
    }
  }
}

}  // namespace
}  // namespace treadle
