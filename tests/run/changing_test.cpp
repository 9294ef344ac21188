// Captures that change during a call: values may be any, memory outside of a buffer is not touched.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "base/copy.h"
#include "fuzz.h"
#include "guarded.h"
#include "plain_attention.h"
#include "sanitizers.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

using test::Guarded;
using test::random_tensor;

// Calls `change` whenever tasks are handed out, which in a warm call with a layout is after its
// facts were found, and `restore` when they are done.
class ChangingExecutor final : public Executor {
 public:
  explicit ChangingExecutor(
      std::function<void()> change, std::function<void()> restore = [] {})
      : change_(std::move(change)), restore_(std::move(restore)) {}

  [[nodiscard]] int threads() const override { return 1; }
  void run(std::int64_t count, const std::function<void(std::int64_t)>& task) override {
    change_();
    for (std::int64_t i = 0; i < count; ++i) task(i);
    restore_();
  }

 private:
  std::function<void()> change_, restore_;
};

constexpr std::int64_t changing_length = 50;

// Attention whose bias is read through indices, with tables and gradients at guard pages.
struct Changing {
  Tensor x = random_tensor(1, DType::f32, {1, 2, changing_length, 8});
  Tensor ids{DType::i32, {changing_length}};
  Guarded memory;
  View table;
  Options options;

  Changing(Guarded::At at, Dims shape, const ScoreMod& score_mod, const MaskMod& mask = {})
      : memory(static_cast<std::size_t>(count_of(shape)) * 4, at),
        table(memory.data(), DType::f32, shape) {
    base::copy(table, random_tensor(2, DType::f32, shape));
    options.score_mod = score_mod;
    options.mask = mask;
    good();
  }

  void fill(const std::function<std::int32_t(std::size_t)>& value) {
    for (std::size_t i = 0; i < ids.data<std::int32_t>().size(); ++i)
      ids.data<std::int32_t>()[i] = value(i);
  }
  void good() {
    fill([](std::size_t i) { return static_cast<std::int32_t>(i % 8); });
  }
  [[nodiscard]] std::vector<Capture> captures() const {
    return {{"table", table}, {"ids", ConstView(ids)}};
  }

  // Forward and backward, first with what the captures hold, then with hostile numbers.
  void run() {
    options.gradients = {"table"};
    const Attention attend = compile(options);
    const Inputs inputs{x, x, x};
    Call call{.captures = captures(), .executor = serial_executor(), .lse = true};
    call.layout = attend.layout(inputs, call);
    const Forward y = attend.forward(inputs, call);
    const Guarded gradient_memory(static_cast<std::size_t>(table.count()) * 4, Guarded::At::end);
    const View gradient(gradient_memory.data(), DType::f32, table.shape());
    Tensor dq(DType::f32, x.shape()), dk(DType::f32, x.shape()), dv(DType::f32, x.shape());
    const BackwardViews results{dq, dk, dv, {{"table", gradient}}};
    const auto backward = [&] {
      attend.backward_into(results, inputs, {y.out, y.lse}, x, std::nullopt, call);
    };
    backward();
    const std::vector<std::int32_t> hostile{-1, 8, 1 << 20, -(1 << 20), INT32_MAX, INT32_MIN};
    for (const std::int32_t number : hostile) {
      call.executor =
          std::make_shared<ChangingExecutor>([&] { fill([&](std::size_t) { return number; }); });
      good();
      (void)attend.forward(inputs, call);
      good();
      try {
        backward();
      } catch (const Error&) {  // a NaN is looked into by the reference, which checks
      }
    }
    good();
  }
};

TEST(ChangingCaptures, AreNeverFollowedOutside) {
  for (const auto at : {Guarded::At::end, Guarded::At::begin}) {
    const auto with = [&](const Dims& shape, const char* score, const char* mask = "true") {
      Tensor ids(DType::i32, {changing_length});
      const Tensor table(DType::f32, shape);
      const std::vector<Capture> named{{"table", ConstView(table)}, {"ids", ConstView(ids)}};
      SCOPED_TRACE(score);
      Changing changing(at, shape, parse(score, named), parse(mask, named));
      changing.run();
    };
    with({8}, "score + table[ids[q]]");
    with({8}, "score * table[ids[kv]]");
    with({15}, "score + table[ids[q] + ids[kv]]");
    with({8 + changing_length}, "score + table[ids[h] + q]");
    with({8 + changing_length}, "score + table[ids[h] + kv]");
    with({8, changing_length}, "score + table[ids[q], kv]");
    with({8, changing_length}, "score + table[ids[kv], q]");
    with({2, 8}, "score * table[h, ids[(q + kv) % 50]]");
    with({8, 8}, "score + table[0, 0]", "table[ids[q], ids[kv]] < 2.0");
  }
}

// With poison that is gone when it is looked for.
TEST(ChangingCaptures, AreNamedAsAReason) {
  Changing changing(Guarded::At::end, {8}, {});
  // The other read, which is never chosen, may be outside: so all are checked.
  changing.options.score_mod =
      parse("score + where(q < 1000, table[ids[q]], table[q])", changing.captures());
  const Attention attend = compile(changing.options);
  const Inputs inputs{changing.x, changing.x, changing.x};
  Call call{.captures = {}, .executor = serial_executor()};
  call.layout = attend.layout(inputs, call);
  (void)attend.forward(inputs, call);
  call.executor = std::make_shared<ChangingExecutor>(
      [&] { changing.fill([](std::size_t) { return 9; }); }, [&] { changing.good(); });
  try {
    (void)attend.forward(inputs, call);
    ADD_FAILURE() << "poison was not noticed";
  } catch (const ModError& error) {
    EXPECT_EQ(std::string_view(error.what()).substr(0, 93),
              "score mod or mask: a read outside of a capture or a division by zero, at b 0, h 0 "
              "and a query")
        << error.what();
  }
}

// Another thread writes all the time.
TEST(ChangingCaptures, ByAnotherThread) {
  if (test::thread_sanitizer) {
    GTEST_SKIP() << "it would report the race between the writer and whoever looks at captures";
  }
  if (test::fuzz_size() != test::FuzzSize::full) GTEST_SKIP() << "TREADLE_TEST_FUZZ=full runs it";
  const std::vector<Dims> shapes{{8}, {8, changing_length}, {8 + changing_length}};
  const char* const scores[]{"score + table[ids[q]]", "score + table[ids[q], kv]",
                             "score + table[ids[h] + kv]"};
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    Changing changing(Guarded::At::end, shapes[i], {});
    changing.options.score_mod = parse(scores[i], changing.captures());
    const Attention attend = compile(changing.options);
    std::atomic<bool> done = false;
    std::thread writer([&] {
      std::mt19937 random(1);
      while (!done) {
        for (std::int32_t& id : changing.ids.data<std::int32_t>()) {
          const bool inside = random() % 8 != 0;
          std::atomic_ref(id).store(static_cast<std::int32_t>(inside ? random() % 8 : random()));
        }
      }
    });
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    int calls = 0;
    while (std::chrono::steady_clock::now() < end) {
      try {
        (void)attend.forward({changing.x, changing.x, changing.x});
        ++calls;
      } catch (const ModError&) {
        ++calls;
      }
    }
    done = true;
    writer.join();
    EXPECT_GT(calls, 0);
  }
}

}  // namespace
}  // namespace treadle
