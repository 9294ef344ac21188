// The loop of multiply-adds alone: what this machine can do at the moment. Whoever times anything else runs it before and
// after, and sees whether the machine was busy.
#include <algorithm>
#include <utility>

#include "cli/bench_case.h"
#include "cli/peak.h"

namespace treadle::cli {
namespace {

Measured measure_loop(DType compute, Executor& executor) {
  Measured measured{.key_heads = 1};
  measured.dtype = name_of(compute);
  Peak peak(plan::host_target(), compute, executor);
  double gflops = 0;
  measured.ms = best_ms([&] { gflops = std::max(gflops, peak.measure()); });
  measured.gflops = gflops;
  return measured;
}

}  // namespace

std::vector<BenchCase> loop_cases() {
  return {{"loop-f32", "loop", [](Executor& e) { return measure_loop(DType::f32, e); }},
          {"loop-f64", "loop", [](Executor& e) { return measure_loop(DType::f64, e); }}};
}

}  // namespace treadle::cli
