// Cases that `treadle bench` measures. Each checks its result before it times anything.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "treadle/executor.h"

namespace treadle::cli {

// What a case found. Numbers that make no sense for its kind stay empty.
struct Measured {
  std::int64_t batch = 1, heads = 1, key_heads = 1, queries = 0, keys = 0;
  std::string dtype{};
  std::optional<std::int64_t> dim{}, value_dim{};
  std::optional<double> density{};      // visible pairs of all pairs
  std::optional<double> run_density{};  // pairs inside runs of all pairs
  double ms = 0;
  std::optional<double> gflops{};             // visible pairs only
  std::optional<double> share{};              // of the multiply-add loop, or of reading the keys
  std::optional<double> error{};              // the largest, against fp64
  std::optional<std::int64_t> bytes{};        // of the result
  std::optional<std::int64_t> build_bytes{};  // the most memory in use while it was built
  std::optional<double> balance{};  // of ranks: the largest share of the work over the mean
  // A comparison that the case is about, and what it compares.
  std::optional<double> ratio{};
  std::string note{};
};

struct BenchCase {
  std::string name;  // begins with its kind (forward-, ..., compile-) or with sparse-
  std::string kind;
  std::function<Measured(Executor&)> run;
};

std::vector<BenchCase> loop_cases();
std::vector<BenchCase> forward_cases();
std::vector<BenchCase> listed_cases();
std::vector<BenchCase> decode_cases();
std::vector<BenchCase> paged_cases();
std::vector<BenchCase> backward_cases();
std::vector<BenchCase> sparse_cases();
std::vector<BenchCase> layout_cases();
std::vector<BenchCase> compile_cases();
std::vector<BenchCase> plan_cases();

// The shortest of several runs, in milliseconds; runs more often the shorter they are.
double best_ms(const std::function<void()>& work);

// A plain loop that reads every byte once; gives their sum.
std::uint64_t read_once(std::span<const std::byte> bytes);
// The same as fast as memory allows: whole words, of which a rest below 256 bytes is left out; gives
// what depends on all of them.
std::uint64_t read_words(std::span<const std::byte> bytes);

// The most memory, in bytes, that the process had in use during work, beyond what it had before. 0
// where the system does not tell.
std::int64_t peak_bytes(const std::function<void()>& work);

}  // namespace treadle::cli
