// A program that never stops and never does the same thing twice: what it has in memory and on disk
// stays bounded, and its results stay right.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <iostream>
#include <random>

#include "api/compiled.h"
#include "api/stages.h"
#include "backend/cpu/cpu.h"
#include "environment.h"
#include "fuzz.h"
#include "jit/prune.h"
#include "mappings.h"
#include "plain_attention.h"
#include "sanitizers.h"
#include "temporary_folder.h"

namespace treadle {
namespace {

using backend::cpu::Process;
using test::random_int;
using test::random_tensor;
using Random = std::mt19937_64;

constexpr std::int64_t capacity = 12;           // kernels in memory
constexpr std::int64_t cache_bytes = 64 << 10;  // on disk

// As compile() does it, with kernels and working memory that are not the process's.
Attention compile_in(Process& process, const Options& options) {
  api::Stages made = api::stages_of(options);
  auto compiled = std::make_shared<Attention::Compiled>();
  compiled->backend = std::make_unique<backend::cpu::Cpu>(made.program, "", process);
  compiled->program = std::move(made.program);
  compiled->captures = std::move(made.captures);
  compiled->gradients = options.gradients;
  return Attention(std::move(compiled));
}

jit::EngineOptions small_engine(const std::string& folder) {
  const test::Environment where("TREADLE_CACHE_DIR", folder.c_str());
  const test::Environment size("TREADLE_CACHE_SIZE", "64K");
  jit::EngineOptions options = jit::EngineOptions::from_environment();
  options.capacity = capacity;
  return options;
}

// One step of training, with shapes, a mask and numbers in its mods that no other step has.
struct Step {
  Tensor q, k, v, dout, table;
  Options options;

  explicit Step(Random& random) {
    const DType type = random() % 3 == 0 ? DType::bf16 : DType::f32;
    const std::int64_t heads = random_int(random, 1, 3), dim = random_int(random, 1, 40),
                       value_dim = random_int(random, 1, 40);
    const std::int64_t queries = random_int(random, 1, 90), keys = random_int(random, 1, 150);
    q = random_tensor(random(), type, {1, heads, queries, dim});
    k = random_tensor(random(), type, {1, 1, keys, dim});
    v = random_tensor(random(), type, {1, 1, keys, value_dim});
    dout = random_tensor(random(), type, {1, heads, queries, value_dim});
    table = random_tensor(random(), DType::f32, {8});
    const double a = test::random_real(random, 1, 50), b = test::random_real(random, -1, 1);
    const std::int64_t n = random_int(random, 1, 200), m = random_int(random, 2, 1 << 20);
    const std::vector<Capture> captures{{"table", ConstView(table)}};
    options.score_mod =
        parse(fmt::format("tanh(score / {0}) * {0} + {1} * table[(q + kv) % 8]", a, b), captures);
    options.mask =
        parse(random() % 2 == 0 ? fmt::format("q - kv < {} and kv - q < {}", n, m)
                                : fmt::format("(q * {} + kv * kv) % {} < {}", m, n + 3, n));
    options.gradients = {"table"};
  }

  struct Results {
    Forward y;
    Backward g;
  };

  [[nodiscard]] Results train(const Attention& attend) const {
    const Inputs inputs{q, k, v};
    Forward y = attend.forward(inputs, {.lse = true});
    Backward g = attend.backward(inputs, {y.out, y.lse}, dout);
    return {std::move(y), std::move(g)};
  }

  void expect_right(const Results& got) const {
    Options plain = options;
    plain.backend = Backend::reference;
    const Results expected = train(compile(plain));
    // An element of 8 digits is half a hundredth wrong; sums of some hundred of them are, too.
    const double tolerance = q.dtype() == DType::bf16 ? 0.05 : 1e-3;
    const auto expect_close = [&](const char* name, const Tensor& seen, const Tensor& want) {
      double most = 1;
      for (const double x : test::Array(ConstView(want)).data) most = std::max(most, std::abs(x));
      EXPECT_LT(test::largest_difference(seen, want), tolerance * most) << name;
    };
    expect_close("out", got.y.out, expected.y.out);
    expect_close("dq", got.g.dq, expected.g.dq);
    expect_close("dk", got.g.dk, expected.g.dk);
    expect_close("dv", got.g.dv, expected.g.dv);
    expect_close("table", got.g.of("table"), expected.g.of("table"));
  }
};

// What may not grow.
struct Footprint {
  std::int64_t mappings = test::count_mappings(), resident = 0;

  Footprint() {
    std::int64_t ignored = 0;
    std::ifstream("/proc/self/statm") >> ignored >> resident;
    resident *= sysconf(_SC_PAGESIZE);
  }
};

// The cache is pruned once an hour; so it is now.
void let_an_hour_pass(const std::string& folder) {
  const std::time_t then = std::time(nullptr) - 3605;
  const timespec times[2] = {{.tv_sec = then}, {.tv_sec = then}};
  utimensat(AT_FDCWD, (folder + "/pruned").c_str(), times, 0);
}

TEST(Soak, NothingGrows) {
  const bool all = test::fuzz_size() == test::FuzzSize::full;
  const int steps = all ? test::fuzz_count(500) : test::fuzz_count(30);
  const int warm = steps / 4;
  const test::TemporaryFolder folder;
  Process process{jit::Engine(small_engine(folder.path()))};
  Footprint before;
  std::int64_t most_resident = 0, most_mappings = 0, most_bytes = 0, made_before = 0;
  for (int number = 0; number < steps; ++number) {
    const std::uint64_t seed = test::fuzz_seed(number);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    {
      const Step step(random);
      let_an_hour_pass(folder.path());
      const Step::Results results = step.train(compile_in(process, step.options));
      if (number % 5 == 0) step.expect_right(results);
    }
    const jit::EngineStatistics seen = process.engine.statistics();
    const std::int64_t made = seen.compiled - made_before;
    EXPECT_GT(made, 0);  // so these were new
    // Beyond the capacity there are those that the step has held; they go when others come.
    EXPECT_LE(seen.in_memory, capacity + made);
    // One step's files are there beyond the limit until the next hour.
    const jit::CacheContents disk = jit::contents_of(folder.path());
    EXPECT_GT(disk.files, 0);
    EXPECT_LE(disk.bytes, cache_bytes + 20 * (32 << 10));
    EXPECT_EQ(disk.temporary, 0);
    made_before = seen.compiled;
    const Footprint now;
    if (number == warm) before = now;
    most_bytes = std::max(most_bytes, disk.bytes);
    most_mappings = std::max(most_mappings, now.mappings);
    most_resident = std::max(most_resident, now.resident);
    if (HasFailure()) return;
  }
  std::cout << fmt::format(
      "{} steps, {} kernels; at most {} KB on disk; mappings {} after {} steps, at most {}; "
      "resident "
      "{} KB, at most {}\n",
      steps, made_before, most_bytes >> 10, before.mappings, warm, most_mappings,
      before.resident >> 10, most_resident >> 10);
  if (test::address_sanitizer || test::thread_sanitizer) return;  // they keep what is freed
  EXPECT_LE(most_mappings, before.mappings + 16);
  EXPECT_LE(most_resident, before.resident + (16 << 20));
}

}  // namespace
}  // namespace treadle
