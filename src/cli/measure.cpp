// Time and memory of a piece of work.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>

#include "cli/bench_case.h"

namespace treadle::cli {
namespace {

// A line of /proc/self/status in bytes; 0 if it is not there.
std::int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    std::int64_t kilobytes = 0;
    if (word == key && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

}  // namespace

double best_ms(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  double best = 1e300;
  double total = 0;
  for (int i = 0; i < 3 || (i < 50 && total < 300); ++i) {
    const auto start = Clock::now();
    work();
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    best = std::min(best, ms);
    total += ms;
    if (total > 5000) break;
  }
  return best;
}

std::uint64_t read_once(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  for (const std::byte byte : bytes) sum += static_cast<std::uint64_t>(byte);
  return sum;
}

std::uint64_t read_words(std::span<const std::byte> bytes) {
  // Many chains, so that reading is all that takes time.
  constexpr std::size_t chains = 32;
  std::array<std::uint64_t, chains> sums{}, words{};
  for (std::size_t at = 0; at + sizeof words <= bytes.size(); at += sizeof words) {
    std::memcpy(words.data(), bytes.data() + at, sizeof words);
    for (std::size_t i = 0; i < chains; ++i) sums[i] ^= words[i];
  }
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

std::int64_t peak_bytes(const std::function<void()>& work) {
  // Linux: writing 5 sets the high-water mark of memory in use back to what is in use now.
  std::ofstream("/proc/self/clear_refs") << "5";
  const std::int64_t before = status_bytes("VmRSS:");
  work();
  return std::max<std::int64_t>(status_bytes("VmHWM:") - before, 0);
}

}  // namespace treadle::cli
