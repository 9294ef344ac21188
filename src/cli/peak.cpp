// Speed as a share of what the machine can do: a loop of multiply-adds before and after the work.
#include "cli/peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <vector>

namespace treadle::cli {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

constexpr double dropped = 0.93;  // of the best loop seen

}  // namespace

Peak::Peak(const plan::Target& target, DType compute, Executor& executor)
    : engine_({}), executor_(executor), compute_(compute) {
  loop_ = engine_.get(plan::PeakSpec{target, compute});
}

double Peak::measure() {
  constexpr std::int64_t turns = 40000;
  std::atomic<std::int64_t> flops{0};
  const double ms = milliseconds([&] {
    executor_.run(executor_.threads(), [&](std::int64_t) {
      float singles[] = {0.999F, 0.001F, 0};
      double doubles[] = {0.999, 0.001, 0};
      std::int64_t done = 0;
      loop_({.turns = turns,
             .numbers = compute_ == DType::f64 ? static_cast<void*>(doubles) : singles,
             .operations = &done});
      flops += done;
    });
  });
  const double speed = static_cast<double>(flops) / ms / 1e6;
  best_ = std::max(best_, speed);
  return speed;
}

Share measure_share(Peak& peak, double flops, const std::function<void()>& work,
                    const Effort& effort) {
  std::vector<double> times, shares, loops;
  double shortest = std::numeric_limits<double>::infinity();
  double total = 0;
  double before = peak.measure();
  for (int turn = 0; turn < effort.most && (turn < effort.fewest || total < effort.long_enough ||
                                            static_cast<int>(times.size()) < effort.fewest / 2);
       ++turn) {
    const double ms = milliseconds(work);
    const double after = peak.measure();
    shortest = std::min(shortest, ms);
    if (std::min(before, after) >= dropped * peak.best()) {
      times.push_back(ms);
      loops.push_back((before + after) / 2);
      shares.push_back(flops / ms / 1e6 / ((before + after) / 2));
    }
    total += ms;
    before = after;
  }
  if (times.empty()) {  // the machine never held still
    const double gflops = flops / shortest / 1e6;
    return {shortest, gflops, gflops / peak.best(), false, peak.best()};
  }
  const double ms = median(times);
  return {ms, flops / ms / 1e6, median(shares), true, median(loops)};
}

double measure_ratio(const std::function<void()>& base, const std::function<void()>& work,
                     const Effort& effort) {
  std::vector<double> ratios;
  double total = 0;
  for (int turn = 0; turn < effort.most && (turn < effort.fewest || total < effort.long_enough);
       ++turn) {
    const double first = milliseconds(base);
    const double second = milliseconds(work);
    ratios.push_back(first / second);
    total += first + second;
  }
  return median(ratios);
}

}  // namespace treadle::cli
