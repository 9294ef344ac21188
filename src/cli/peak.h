// What this machine can do at the moment, and a piece of work beside it.
//
// Clocks move and machines are shared, so a time means little by itself: the loop of multiply-adds
// runs right before and after the work, and what counts is the share of it that the work reaches.
#pragma once

#include <functional>
#include <string>

#include "jit/engine.h"
#include "plan/target.h"
#include "treadle/dtype.h"
#include "treadle/executor.h"

namespace treadle::cli {

class Peak {
 public:
  Peak(const plan::Target& target, DType compute, Executor& executor);

  // GFLOP/s of the loop on all of the executor's threads, now.
  double measure();
  // The most that it has been so far.
  [[nodiscard]] double best() const { return best_; }

 private:
  jit::Engine engine_;
  Executor& executor_;
  DType compute_;
  plan::Kernel<plan::PeakArgs> loop_;
  double best_ = 0;
};

// How long to measure: until both `fewest` turns and `long_enough` milliseconds are over.
struct Effort {
  int fewest = 9, most = 60;  // turns
  double long_enough = 1500;
};

struct Share {
  double ms = 0, gflops = 0, share = 0;  // medians
  // False: the loop dropped beside every turn. Then ms is the shortest, and the share that of the
  // best loop: the work may reach more.
  bool steady = true;
  double loop = 0;  // GFLOP/s of the loop beside the turns that count
};

// Of work that does so many floating-point operations. A turn beside which the loop dropped is
// taken again.
Share measure_share(Peak& peak, double flops, const std::function<void()>& work,
                    const Effort& effort = {});

// How many times as long `base` takes as `work`, turn by turn; the median.
double measure_ratio(const std::function<void()>& base, const std::function<void()>& work,
                     const Effort& effort = {});

}  // namespace treadle::cli
