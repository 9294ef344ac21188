// Distributed calls, timed: bench/distributed.py starts it and says what its rows mean.
//
//   mpirun -n 2 build/release/bench/bench_ranks --mask causal --length 32768 --threads 1 --beside 2
//   build/release/bench/bench_ranks --in-process 2 --delay-us 2000 ...       ranks are threads
//
// Every repetition checks that results have the bits of the repetition before. Rank 0 prints one line of JSON.
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "treadle/distributed.h"
#include "treadle/in_process_exchange.h"
#include "treadle/mpi.h"
#include "treadle/treadle.h"

namespace {

using namespace treadle;
namespace td = treadle::distributed;
using Clock = std::chrono::steady_clock;

struct Settings {
  std::string mask = "causal";
  std::int64_t length = 32768, heads = 8, key_heads = 2, dim = 64, documents = 32;
  int threads = 1, repeat = 5, in_process = 0, beside = 0, head_groups = 0;
  double delay_us = 0, patience = 120;
  std::string fault;  // of the last rank: fail, die, silent
  bool per_rank = false, forward_only = false, describe = false;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Processor time of the threads that work on tasks, so that a rank that waits for another, or for a core, is not busy.
class BusyExecutor final : public Executor {
 public:
  explicit BusyExecutor(int threads)
      : inner_(threads == 1 ? serial_executor() : tbb_executor(threads)) {}
  [[nodiscard]] int threads() const override { return inner_->threads(); }
  void run(std::int64_t count, const std::function<void(std::int64_t)>& task) override {
    inner_->run(count, [&](std::int64_t i) {
      const double start = now();
      task(i);
      const std::lock_guard lock(mutex_);
      busy_ += now() - start;
    });
  }
  double take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(busy_, 0);
  }

 private:
  static double now() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  std::shared_ptr<Executor> inner_;
  std::mutex mutex_;
  double busy_ = 0;
};

Tensor random_rows(const Dims& shape, std::int64_t first, std::uint32_t salt) {
  Tensor tensor(DType::f32, shape);
  const std::int64_t rows = shape[2], dim = shape[3];
  float* to = tensor.data<float>().data();
  for (std::int64_t head = 0; head < shape[0] * shape[1]; ++head) {
    for (std::int64_t row = 0; row < rows; ++row) {
      // Of a rank's rows alone: every rank has those of the whole call.
      auto x = static_cast<std::uint32_t>((head * 1'000'003 + first + row) * 2'654'435'761 + salt);
      for (std::int64_t d = 0; d < dim; ++d) {
        x = x * 1'664'525 + 1'013'904'223;
        to[(head * rows + row) * dim + d] = static_cast<float>(x >> 8) / 8'388'608.F - 1.F;
      }
    }
  }
  return tensor;
}

// What the last rank does after a call that went well; the others say what they threw, and how much later.
int run_fault(const Settings& s) {
  const auto exchange = mpi_exchange(MPI_COMM_WORLD);
  const int rank = exchange->rank(), ranks = exchange->ranks();
  const auto shards = td::Shards::even(s.length, ranks);
  const std::int64_t rows = shards.count(rank);
  auto limit = std::make_shared<Tensor>(DType::f32, Dims{s.length});
  Options mods;
  mods.mask = parse("q >= kv");
  // If told to, it reads further than it may at the last query, which one of the ranks computes.
  mods.score_mod =
      parse("score + limit[q + shift]", {{"limit", limit}, {"shift", std::int64_t{0}}});
  const Attention attention = compile(mods);
  td::PlanOptions options;
  options.patience = std::chrono::milliseconds(static_cast<std::int64_t>(s.patience * 1000));
  const TensorSpec q_all(DType::f32, {1, s.heads, s.length, s.dim}),
      k_all(DType::f32, {1, s.key_heads, s.length, s.dim});
  const td::Plan plan =
      td::plan(attention, exchange, q_all, k_all, k_all, shards, shards, {}, options);
  const Tensor q = random_rows({1, s.heads, rows, s.dim}, 0, 1),
               k = random_rows({1, s.key_heads, rows, s.dim}, 0, 2);
  (void)td::forward(attention, plan, {q, k, k});
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = Clock::now();
  const auto wall =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  if (rank == ranks - 1) std::printf("{\"fault\": \"%s\", \"at\": %.6f}\n", s.fault.c_str(), wall);
  std::fflush(stdout);
  if (rank == ranks - 1 && s.fault == "die") std::raise(SIGKILL);
  if (rank == ranks - 1 && s.fault == "silent")
    std::this_thread::sleep_for(std::chrono::minutes(5));
  Call call;
  if (s.fault == "fail") call.captures = {{"shift", std::int64_t{1}}};
  try {
    (void)td::forward(attention, plan, {q, k, k}, call);
  } catch (const std::exception& error) {
    std::printf("{\"rank\": %d, \"after\": %.3f, \"threw\": %s}\n", rank, seconds_since(start),
                nlohmann::json(error.what()).dump().c_str());
    std::fflush(stdout);
  }
  return 0;
}

// Documents of very different lengths, the same on all ranks.
std::shared_ptr<Tensor> documents_of(std::int64_t length, std::int64_t count) {
  auto doc = std::make_shared<Tensor>(DType::i32, Dims{length});
  std::uint32_t x = 12345;
  std::int32_t number = 0;
  for (std::int32_t& d : doc->data<std::int32_t>()) {
    x = x * 1'664'525 + 1'013'904'223;
    if ((x >> 4) % static_cast<std::uint32_t>(std::max<std::int64_t>(length / count, 1)) == 0)
      ++number;
    d = number;
  }
  return doc;
}

Attention attention_of(const Settings& s) {
  Options options;
  if (s.mask == "causal")
    options.mask = parse("q >= kv");
  else if (s.mask == "documents")
    options.mask =
        parse("q >= kv and doc[q] == doc[kv]", {{"doc", documents_of(s.length, s.documents)}});
  else
    options.mask = parse(s.mask);
  return compile(options);
}

struct Result {
  double forward = std::numeric_limits<double>::infinity(), backward = forward, both = forward,
         plain = forward;
  double busy = std::numeric_limits<double>::infinity(), first = 0, plan = 0;
  std::int64_t sent = 0, received = 0, announced = 0, messages = 0, all_gather = 0;
  double balance = 1;
  bool same = true;
};

using Barrier = std::function<void()>;

Result run_rank(const Settings& s, const std::shared_ptr<Exchange>& exchange,
                const Barrier& barrier) {
  const int rank = exchange->rank(), ranks = exchange->ranks();
  const auto shards = td::Shards::even(s.length, ranks);
  const std::int64_t first = shards.begin(rank), rows = shards.count(rank);
  auto executor = std::make_shared<BusyExecutor>(s.threads);
  const Attention attention = attention_of(s);
  const Call call{.executor = executor, .lse = true};
  const TensorSpec q_all(DType::f32, {1, s.heads, s.length, s.dim}),
      k_all(DType::f32, {1, s.key_heads, s.length, s.dim});
  Result result;
  const auto planned = Clock::now();
  td::PlanOptions options;
  options.head_groups = s.head_groups;
  options.sums = s.per_rank ? td::Sums::per_rank : td::Sums::same_bits;
  options.patience = std::chrono::milliseconds(static_cast<std::int64_t>(s.patience * 1000));
  const td::Plan plan =
      td::plan(attention, exchange, q_all, k_all, k_all, shards, shards, call, options);
  result.plan = seconds_since(planned);
  result.balance = plan.balance();
  result.all_gather = plan.bytes_of_all_gather();
  if (s.describe) {
    result.sent = plan.forward_traffic().sent;
    result.received = plan.forward_traffic().received;
    result.messages = plan.forward_traffic().messages;
    result.announced = plan.backward_traffic().received;
    result.forward = result.backward = result.both = result.busy = 0;
    if (rank == 0) std::fputs(plan.describe().c_str(), stderr);
    return result;
  }
  const Tensor q = random_rows({1, s.heads, rows, s.dim}, first, 1),
               k = random_rows({1, s.key_heads, rows, s.dim}, first, 2),
               v = random_rows({1, s.key_heads, rows, s.dim}, first, 3),
               dout = random_rows({1, s.heads, rows, s.dim}, first, 4);
  const Inputs mine{q, k, v};
  // What one machine's call would have, for the comparison in the same run.
  Tensor wq, wk, wv, wdout;
  if (s.beside > 0 && rank == 0) {
    wq = random_rows({1, s.heads, s.length, s.dim}, 0, 1);
    wk = random_rows({1, s.key_heads, s.length, s.dim}, 0, 2);
    wv = random_rows({1, s.key_heads, s.length, s.dim}, 0, 3);
    wdout = random_rows({1, s.heads, s.length, s.dim}, 0, 4);
  }
  const Call beside{.executor = s.beside > 0 ? tbb_executor(s.beside) : serial_executor(),
                    .lse = true};
  Forward before;
  Backward gradients_before;
  for (int i = 0; i <= s.repeat; ++i) {
    barrier();
    executor->take();
    const auto start = Clock::now();
    Forward y = td::forward(attention, plan, mine, call);
    const double forward = seconds_since(start);
    Backward g;
    if (!s.forward_only)
      g = td::backward(attention, plan, mine, {y.out, y.lse}, dout, std::nullopt, call);
    const double both = seconds_since(start), busy = executor->take();
    if (i == 0) {
      result.first = both;
    } else {
      result.forward = std::min(result.forward, forward);
      result.backward = std::min(result.backward, both - forward);
      result.both = std::min(result.both, both);
      result.busy = std::min(result.busy, busy);
      const auto same = [](const Tensor& a, const Tensor& b) {
        return std::memcmp(a.view().data(), b.view().data(),
                           static_cast<std::size_t>(a.count()) * sizeof(float)) == 0;
      };
      result.same = result.same && same(y.out, before.out) &&
                    (s.forward_only || same(g.dk, gradients_before.dk));
    }
    if (s.beside > 0) {
      barrier();
      if (rank == 0) {
        const auto plain = Clock::now();
        Forward w = attention.forward({wq, wk, wv}, beside);
        if (!s.forward_only)
          (void)attention.backward({wq, wk, wv}, {w.out, w.lse}, wdout, std::nullopt, beside);
        if (i > 0) result.plain = std::min(result.plain, seconds_since(plain));
        const auto bytes = [&](const Tensor& t, std::int64_t head, std::int64_t row) {
          return t.data<float>().data() + (head * t.size(2) + row) * s.dim;
        };
        for (std::int64_t head = 0; head < s.heads; ++head)
          result.same = result.same &&
                        std::memcmp(bytes(y.out, head, 0), bytes(w.out, head, 0),
                                    static_cast<std::size_t>(rows * s.dim) * sizeof(float)) == 0;
      }
      barrier();
    }
    before = std::move(y);
    gradients_before = std::move(g);
  }
  const td::Traffic f = plan.forward_traffic(), b = plan.backward_traffic();
  const td::Traffic fm = plan.forward_moved(), bm = plan.backward_moved();
  const std::int64_t calls = s.repeat + 1;
  result.same =
      result.same && fm.sent == calls * f.sent && fm.received == calls * f.received &&
      (s.forward_only || (bm.sent == calls * b.sent && bm.received == calls * b.received));
  result.sent = f.sent;
  result.received = f.received;
  result.messages = f.messages;
  result.announced = b.received;
  return result;
}

nlohmann::json to_json(const Settings& s, const std::vector<Result>& all) {
  Result worst = all.front();
  double busy = 0, most = 0;
  nlohmann::json of_ranks = nlohmann::json::array();
  for (const Result& r : all) {
    busy += r.busy;
    most = std::max(most, r.busy);
    worst.forward = std::max(worst.forward, r.forward);
    worst.backward = std::max(worst.backward, r.backward);
    worst.both = std::max(worst.both, r.both);
    worst.received = std::max(worst.received, r.received);
    worst.announced = std::max(worst.announced, r.announced);
    worst.messages = std::max(worst.messages, r.messages);
    worst.same = worst.same && r.same;
    of_ranks.push_back(r.busy);
  }
  nlohmann::json row{{"mask", s.mask},
                     {"length", s.length},
                     {"ranks", all.size()},
                     {"threads", s.threads},
                     {"forward", worst.forward},
                     {"backward", worst.backward},
                     {"both", worst.both},
                     {"first", worst.first},
                     {"plan", worst.plan},
                     {"busy", of_ranks},
                     {"planned_balance", worst.balance},
                     {"forward_bytes", worst.received},
                     {"backward_bytes", worst.announced},
                     {"messages", worst.messages},
                     {"all_gather", worst.all_gather},
                     {"as_announced_and_same_bits", worst.same}};
  row["measured_balance"] = most / (busy / static_cast<double>(all.size()));
  if (s.beside > 0) row["beside"] = all.front().plain;
  return row;
}

int run_mpi(const Settings& s) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  // Sleeps, so that who waits takes no core from who works.
  const Barrier barrier = [] {
    MPI_Request request{};
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    int done = 0;
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE), done == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
  };
  const Result own = run_rank(s, mpi_exchange(MPI_COMM_WORLD), barrier);
  std::vector<Result> all(static_cast<std::size_t>(ranks));
  MPI_Gather(&own, sizeof(Result), MPI_BYTE, all.data(), sizeof(Result), MPI_BYTE, 0,
             MPI_COMM_WORLD);
  if (rank == 0) std::puts(to_json(s, all).dump().c_str());
  return 0;
}

int run_threads(const Settings& s) {
  const auto exchanges = in_process_exchanges(
      s.in_process,
      {.seed = 1, .delay = std::chrono::microseconds(static_cast<std::int64_t>(s.delay_us))});
  std::vector<Result> all(exchanges.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < all.size(); ++r)
    threads.emplace_back([&, r] { all[r] = run_rank(s, exchanges[r], [] {}); });
  for (std::thread& thread : threads) thread.join();
  std::puts(to_json(s, all).dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app("Distributed calls, timed");
  app.add_option("--mask", s.mask, "causal, documents, or a mask as text");
  app.add_option("--length", s.length);
  app.add_option("--documents", s.documents, "how many");
  app.add_option("--heads", s.heads);
  app.add_option("--key-heads", s.key_heads);
  app.add_option("--dim", s.dim);
  app.add_option("--threads", s.threads, "of each rank");
  app.add_option("--repeat", s.repeat);
  app.add_option("--in-process", s.in_process, "so many threads as ranks, without MPI");
  app.add_option("--delay-us", s.delay_us, "of every message between threads");
  app.add_option("--beside", s.beside,
                 "also time one machine's call, with so many threads of rank 0");
  app.add_option("--head-groups", s.head_groups);
  app.add_option("--patience", s.patience, "in seconds");
  app.add_option("--fault", s.fault, "fail, die or silent: what the last rank does");
  app.add_flag("--per-rank", s.per_rank, "Sums::per_rank");
  app.add_flag("--forward-only", s.forward_only);
  app.add_flag("--describe", s.describe, "print the plan, and call nothing");
  CLI11_PARSE(app, argc, argv);
  if (s.in_process > 0) return run_threads(s);
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  const int status = s.fault.empty() ? run_mpi(s) : run_fault(s);
  MPI_Finalize();
  return status;
}
