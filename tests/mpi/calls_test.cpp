// Distributed calls between processes: the bits of one machine's call, and the same error on all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstring>
#include <new>

#include "treadle/distributed.h"
#include "treadle/mpi.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

namespace td = distributed;

constexpr std::int64_t batch = 1, heads = 4, key_heads = 2, length = 2100, dim = 16;

// The same numbers on all ranks.
Tensor numbers(const Dims& shape, std::uint32_t seed) {
  Tensor tensor(DType::f32, shape);
  std::uint32_t state = seed;
  for (float& x : tensor.data<float>()) {
    state = state * 1664525U + 1013904223U;
    x = static_cast<float>(static_cast<double>(state) / 4294967296.0 - 0.5) * 3;
  }
  return tensor;
}

ConstView rows_of(const ConstView& view, std::int64_t begin, std::int64_t end) {
  Dims shape = view.shape();
  shape[2] = end - begin;
  const auto* data = static_cast<const std::byte*>(view.data()) +
                     begin * view.stride(2) * static_cast<std::int64_t>(size_of(view.dtype()));
  return {data, view.dtype(), shape, view.strides()};
}

// Head by head, since a rank's rows are contiguous within a head.
bool same_bits(const Tensor& part, const Tensor& whole, std::int64_t begin) {
  const ConstView own = part, all = rows_of(whole, begin, begin + part.size(2));
  if (own.shape() != all.shape()) return false;
  const std::int64_t row = own.rank() == 4 ? own.size(3) : 1;
  for (std::int64_t h = 0; h < own.size(1); ++h) {
    const auto* a = static_cast<const float*>(own.data()) + h * own.stride(1);
    const auto* b = static_cast<const float*>(all.data()) + h * all.stride(1);
    if (std::memcmp(a, b, static_cast<std::size_t>(own.size(2) * row) * sizeof(float)) != 0)
      return false;
  }
  return true;
}

struct MaskCase {
  std::string name, mask;
};
void PrintTo(const MaskCase& one, std::ostream* out) { *out << one.mask; }

class Calls : public testing::TestWithParam<MaskCase> {
 protected:
  Calls() {
    auto documents = std::make_shared<Tensor>(DType::i32, Dims{length});
    for (std::int64_t i = 0; i < length; ++i)
      documents->data<std::int32_t>()[static_cast<std::size_t>(i)] =
          static_cast<std::int32_t>(i / 500 + i / 300);
    Options options;
    options.mask = parse(GetParam().mask, {Capture("doc", documents)});
    options.score_mod =
        parse("score + slopes[h] * float(kv - q)",
              {Capture("slopes", std::make_shared<Tensor>(DType::f32, Dims{heads}))});
    options.gradients = {"slopes"};
    attention_ = std::make_unique<Attention>(compile(options));
    call_.executor = serial_executor();
    call_.lse = true;
  }
  [[nodiscard]] td::Plan plan(const td::Shards& rows) const {
    const TensorSpec of_q(DType::f32, q_.shape()), of_k(DType::f32, k_.shape());
    return td::plan(*attention_, exchange_, of_q, of_k, of_k, rows, rows, call_,
                    {.patience = std::chrono::seconds(60)});
  }
  [[nodiscard]] Inputs mine(const td::Shards& rows) const {
    const std::int64_t begin = rows.begin(rank_), end = rows.end(rank_);
    return {rows_of(q_, begin, end), rows_of(k_, begin, end), rows_of(v_, begin, end)};
  }
  void expect_bits(const td::Shards& rows) {
    const Forward whole = attention_->forward({q_, k_, v_}, call_);
    const Backward gradients =
        attention_->backward({q_, k_, v_}, {whole.out, whole.lse}, dout_, std::nullopt, call_);
    const td::Plan plan = this->plan(rows);
    const std::int64_t begin = rows.begin(rank_), end = rows.end(rank_);
    for (int i = 0; i < 2; ++i) {
      const Forward y = td::forward(*attention_, plan, mine(rows), call_);
      EXPECT_EQ(same_bits(y.out, whole.out, begin), true) << "out";
      EXPECT_EQ(same_bits(y.lse, whole.lse, begin), true) << "lse";
      const Backward g = td::backward(*attention_, plan, mine(rows), {y.out, y.lse},
                                      rows_of(dout_, begin, end), std::nullopt, call_);
      EXPECT_EQ(same_bits(g.dq, gradients.dq, begin), true) << "dq";
      EXPECT_EQ(same_bits(g.dk, gradients.dk, begin), true) << "dk";
      EXPECT_EQ(same_bits(g.dv, gradients.dv, begin), true) << "dv";
      EXPECT_EQ(std::memcmp(g.of("slopes").view().data(), gradients.of("slopes").view().data(),
                            heads * sizeof(float)),
                0)
          << "gradient of slopes";
    }
    const td::Traffic announced = plan.forward_traffic(), moved = plan.forward_moved();
    EXPECT_EQ(moved.sent, 2 * announced.sent);
    EXPECT_EQ(moved.received, 2 * announced.received);
    EXPECT_EQ(moved.messages, 2 * announced.messages);
    EXPECT_EQ(plan.backward_moved().sent, 2 * plan.backward_traffic().sent);
  }

  std::shared_ptr<Exchange> exchange_ = mpi_exchange(MPI_COMM_WORLD);
  int rank_ = exchange_->rank(), ranks_ = exchange_->ranks();
  Tensor q_ = numbers({batch, heads, length, dim}, 1),
         k_ = numbers({batch, key_heads, length, dim}, 2),
         v_ = numbers({batch, key_heads, length, dim}, 3),
         dout_ = numbers({batch, heads, length, dim}, 4);
  std::unique_ptr<Attention> attention_;
  Call call_;
};

TEST_P(Calls, HaveTheBitsOfOneMachine) { expect_bits(td::Shards::even(length, ranks_)); }

TEST_P(Calls, HaveThemWithUnevenShards) {
  td::Shards rows{{0}};
  for (int r = 1; r < ranks_; ++r) rows.starts.push_back(r % 2 == 0 ? length : 7 * r);
  std::ranges::sort(rows.starts);
  rows.starts.push_back(length);
  expect_bits(rows);
}

class NoMemory final : public Executor {
 public:
  [[nodiscard]] int threads() const override { return 1; }
  void run(std::int64_t, const std::function<void(std::int64_t)>&) override {
    throw std::bad_alloc();
  }
};

std::string thrown_by(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

TEST_P(Calls, FailOnAllRanks) {
  const td::Shards rows = td::Shards::even(length, ranks_);
  const td::Plan plan = this->plan(rows);
  const int failing = ranks_ - 1;
  Call bad = call_;
  if (rank_ == failing) bad.executor = std::make_shared<NoMemory>();
  EXPECT_EQ(thrown_by([&] { (void)td::forward(*attention_, plan, mine(rows), bad); }),
            "forward: rank " + std::to_string(failing) + ": out of memory");
  // The next call is right.
  expect_bits(rows);
}

TEST_P(Calls, NameTheRankThatDisagrees) {
  if (ranks_ < 3) return;  // nobody is odd then
  td::Shards rows = td::Shards::even(length, ranks_);
  if (rank_ == 1) ++rows.starts[1];
  EXPECT_THAT(thrown_by([&] { (void)plan(rows); }),
              testing::StartsWith("plan: rank 1 has shards of queries that start at 0, "));
}

INSTANTIATE_TEST_SUITE_P(
    Masks, Calls,
    testing::Values(MaskCase{"Causal", "q >= kv"},
                    MaskCase{"Documents", "doc[q] == doc[kv] and q >= kv"},
                    MaskCase{"LocalOrStrided", "q >= kv and (q - kv < 64 or (q - kv) % 64 == 0)"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace treadle
