// One variant, forward and backward: how long it takes, and how right it is.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cli/demo_variants.h"
#include "treadle/executor.h"

namespace treadle::cli {

struct Outcome {
  double visible = 0;  // part of the pairs that see each other
  double forward_ms = 0, backward_ms = 0;
  double error = 0;   // the largest of all results, in units of the largest number in that result
  std::string worst;  // the result that has it: out, dq, dk, dv or a capture's name
};

// Called with what is about to be done.
using Report = std::function<void(std::string_view)>;

// Runs in f32 and compares with the same computation in f64.
Outcome run_variant(const Variant& variant, const Sizes& sizes,
                    const std::shared_ptr<Executor>& executor, const Report& report);

}  // namespace treadle::cli
