// One variant of `treadle demo`: how long each pass takes, and how right it is.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/demo_variants.h"
#include "cli/peak.h"
#include "treadle/executor.h"

namespace treadle::cli {

struct PassOutcome {
  std::string name;       // forward, backward or decode
  double compile_ms = 0;  // what the first call took longer than the others
  double ms = 0;
  double share = 0;     // of multiply-adds; for decode, of reading the keys and values
  bool steady = true;   // false: other programs kept the machine busy all the time
  double loop = 0;      // GFLOP/s of multiply-adds beside it; 0 for decode
  double dense_ms = 0;  // the same pass without a mask and a score mod
  bool dense_steady = true;
  double dense_loop = 0;
  double error = 0;   // the largest of all results, in units of the largest number in that result
  std::string worst;  // the result that has it: out, dq, dk, dv or a capture's name
};

struct Outcome {
  Sizes sizes;  // at which it was timed
  std::int64_t key_heads = 0;
  double visible = 0;  // part of the pairs that see each other
  std::array<std::string, 2> picture;
  std::vector<PassOutcome> passes;
};

// Called with what is about to be done.
using Report = std::function<void(std::string_view)>;

class DemoRunner {
 public:
  explicit DemoRunner(std::shared_ptr<Executor> executor);

  // Runs in f32. Results are compared with those of the reference in f64, at the size asked for;
  // those of decode at the size at which it is timed.
  Outcome run(const Variant& variant, const Sizes& sizes, const Report& report);

  // What looked steady is not if the loop ran faster at another time: to be called at the end.
  void judge(std::vector<PassOutcome>& passes) const;

 private:
  std::vector<PassOutcome> time(const Prepared& ready, const Variant& variant, const Sizes& sizes,
                                double visible, const Report& report);
  // Measured once for each size, and again while the machine was busy.
  const std::vector<PassOutcome>& dense(const Variant& variant, const Sizes& sizes,
                                        std::int64_t key_heads, const Report& report);

  std::shared_ptr<Executor> executor_;
  Peak peak_;
  std::map<std::vector<std::int64_t>, std::vector<PassOutcome>> dense_;
};

}  // namespace treadle::cli
