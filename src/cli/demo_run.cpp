// In: a variant and a size. Out: its Outcome. Read run_variant first.
#include "cli/demo_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "base/copy.h"
#include "cli/random_tensor.h"
#include "cli/visible_share.h"

namespace treadle::cli {
namespace {

struct Data {
  Tensor q, k, v, dout;
};

Data random_data(const Sizes& sizes, std::int64_t key_heads) {
  const Dims queries{sizes.batch, sizes.heads, sizes.queries, sizes.dim};
  const Dims keys{sizes.batch, key_heads, sizes.keys, sizes.dim};
  return {random_tensor(queries, 1), random_tensor(keys, 2), random_tensor(keys, 3),
          random_tensor(queries, 4)};
}

Data converted(const Data& data, DType dtype) {
  return {base::convert(data.q, dtype), base::convert(data.k, dtype), base::convert(data.v, dtype),
          base::convert(data.dout, dtype)};
}

// The best of a few runs, so that a short one is not judged by what else the machine did; a long
// one runs once.
template <class F>
auto timed(double& best_ms, F&& f) {
  using Clock = std::chrono::steady_clock;
  constexpr int most_runs = 5;
  constexpr double enough_ms = 100;
  best_ms = std::numeric_limits<double>::infinity();
  double total_ms = 0;
  for (int run = 1;; ++run) {
    const auto start = Clock::now();
    auto result = f();
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    best_ms = std::min(best_ms, ms);
    total_ms += ms;
    if (run == most_runs || total_ms >= enough_ms) return result;
  }
}

struct Results {
  Forward forward;
  Backward backward;
  double forward_ms = 0, backward_ms = 0;
};

Results compute(const Options& options, const Data& data, const std::shared_ptr<Executor>& executor,
                const Report& report, std::string_view type) {
  const Attention attention = compile(options);
  const Inputs inputs{data.q, data.k, data.v};
  const Call call{.executor = executor, .lse = true};
  Results results;
  report(std::string("forward, ").append(type));
  results.forward = timed(results.forward_ms, [&] { return attention.forward(inputs, call); });
  report(std::string("backward, ").append(type));
  const Saved saved{results.forward.out, results.forward.lse};
  results.backward = timed(results.backward_ms, [&] {
    return attention.backward(inputs, saved, data.dout, std::nullopt, call);
  });
  return results;
}

// In units of the largest exact number; a result that is zero throughout has to be met as it is.
// NaN is as wrong as can be.
double error_of(const Tensor& result, const Tensor& exact) {
  const Tensor wide = base::convert(result, DType::f64);
  double difference = 0;
  double largest = 0;
  for (std::size_t i = 0; i < wide.data<double>().size(); ++i) {
    const double seen = wide.data<double>()[i];
    const double wanted = exact.data<double>()[i];
    if (!std::isfinite(seen)) return std::numeric_limits<double>::infinity();
    difference = std::max(difference, std::abs(seen - wanted));
    largest = std::max(largest, std::abs(wanted));
  }
  return largest > 0 ? difference / largest : difference;
}

void compare(Outcome& outcome, const Results& results, const Results& exact) {
  const auto one = [&](std::string name, const Tensor& result, const Tensor& wanted) {
    const double error = error_of(result, wanted);
    if (outcome.worst.empty() || error > outcome.error) {
      outcome.error = error;
      outcome.worst = std::move(name);
    }
  };
  one("out", results.forward.out, exact.forward.out);
  one("dq", results.backward.dq, exact.backward.dq);
  one("dk", results.backward.dk, exact.backward.dk);
  one("dv", results.backward.dv, exact.backward.dv);
  for (const CaptureGradient& capture : results.backward.captures) {
    one("d" + capture.name, capture.gradient, exact.backward.of(capture.name));
  }
}

}  // namespace

Outcome run_variant(const Variant& variant, const Sizes& sizes,
                    const std::shared_ptr<Executor>& executor, const Report& report) {
  const Prepared ready = variant.prepare(sizes, DType::f32);
  const Data data = random_data(sizes, ready.key_heads);
  const Results results = compute(ready.options, data, executor, report, "f32");

  Prepared exact_ready = variant.prepare(sizes, DType::f64);
  exact_ready.options.backend = Backend::reference;
  const Results exact =
      compute(exact_ready.options, converted(data, DType::f64), executor, report, "f64");

  report("counting pairs");
  Outcome outcome{.visible = visible_share(ready.options.mask, sizes, *executor),
                  .forward_ms = results.forward_ms,
                  .backward_ms = results.backward_ms,
                  .error = 0,
                  .worst = {}};
  compare(outcome, results, exact);
  return outcome;
}

}  // namespace treadle::cli
