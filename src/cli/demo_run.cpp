// In: a variant and a size. Out: its Outcome. Read DemoRunner::run first.
#include "cli/demo_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/copy.h"
#include "base/parallel.h"
#include "cli/bench_case.h"
#include "cli/mask_thumbnail.h"
#include "cli/random_tensor.h"
#include "cli/visible_share.h"

namespace treadle::cli {
namespace {

// A demo is to be over soon: `treadle bench` measures longer.
constexpr Effort effort{.fewest = 3, .most = 15, .long_enough = 150};
// Caches take turns, so that none is found in the processor's.
constexpr std::int64_t most_cache_bytes = std::int64_t{256} << 20;
constexpr std::int64_t most_caches = 8;
constexpr double still_steady = 0.9;  // of the best loop

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

double milliseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

// --- times ---------------------------------------------------------------------------------------

// The first call compiles, and makes the memory into which the others write.
PassOutcome timed(Peak& peak, std::string name, double flops,
                  const std::function<void()>& first_call, const std::function<void()>& work) {
  PassOutcome outcome{.name = std::move(name)};
  const double first = milliseconds(first_call);
  const Share share = measure_share(peak, flops, work, effort);
  outcome.ms = share.ms;
  outcome.compile_ms = std::max(0.0, first - share.ms);
  outcome.share = share.share;
  outcome.steady = share.steady;
  outcome.loop = share.loop;
  return outcome;
}

std::vector<PassOutcome> time_training(const Options& options, const Data& data,
                                       const std::shared_ptr<Executor>& executor, Peak& peak,
                                       double pairs, const Report& report) {
  const Attention attention = compile(options);
  const Inputs inputs{data.q, data.k, data.v};
  const Call call{.executor = executor, .lse = true};
  const double products = pairs * static_cast<double>(data.q.size(3));
  Forward forward;
  Backward backward;
  const auto saved = [&] { return Saved{forward.out, forward.lse}; };
  report("forward");
  std::vector<PassOutcome> passes{timed(
      peak, "forward", 4 * products, [&] { forward = attention.forward(inputs, call); },
      [&] {
        attention.forward_into({forward.out.view(), forward.lse.view(), std::nullopt}, inputs,
                               call);
      })};
  report("backward");
  passes.push_back(timed(
      peak, "backward", 10 * products,
      [&] { backward = attention.backward(inputs, saved(), data.dout, std::nullopt, call); },
      [&] {
        BackwardViews views{backward.dq, backward.dk, backward.dv, {}};
        for (CaptureGradient& capture : backward.captures)
          views.captures.push_back({capture.name, capture.gradient});
        attention.backward_into(views, inputs, saved(), data.dout, std::nullopt, call);
      }));
  return passes;
}

// Every byte once, on all threads.
void read(const Tensor& tensor, Executor& executor) {
  const ConstView view = tensor;
  const std::int64_t bytes = tensor.count() * static_cast<std::int64_t>(size_of(tensor.dtype()));
  const std::int64_t parts = std::max(executor.threads(), 1);
  base::parallel_for(executor, parts, [&](std::int64_t i) {
    const std::int64_t begin = bytes * i / parts, end = bytes * (i + 1) / parts;
    volatile std::uint64_t sum = read_words({static_cast<const std::byte*>(view.data()) + begin,
                                             static_cast<std::size_t>(end - begin)});
    (void)sum;
  });
}

std::vector<PassOutcome> time_decoding(const Options& options, const Sizes& sizes,
                                       std::int64_t key_heads,
                                       const std::shared_ptr<Executor>& executor,
                                       const Report& report) {
  report("decode");
  std::vector<Data> caches;
  const std::int64_t bytes = 2 * 4 * sizes.batch * key_heads * sizes.keys * sizes.dim;
  const std::int64_t count = std::clamp<std::int64_t>(most_cache_bytes / bytes, 1, most_caches);
  for (std::int64_t i = 0; i < count; ++i) caches.push_back(random_data(sizes, key_heads));
  const Attention attention = compile(options);
  Tensor out(DType::f32, caches.front().q.shape());
  const auto step = [&](const Data& cache) {
    attention.forward_into({out.view(), std::nullopt, std::nullopt}, {cache.q, cache.k, cache.v},
                           {.executor = executor});
  };
  const auto step_all = [&] {
    for (const Data& cache : caches) step(cache);
  };
  const auto read_all = [&] {
    for (const Data& cache : caches) {
      read(cache.k, *executor);
      read(cache.v, *executor);
    }
  };
  PassOutcome outcome{.name = "decode"};
  const double first = milliseconds([&] { step(caches.front()); });
  outcome.share = measure_ratio(read_all, step_all, effort);
  outcome.ms = best_ms(step_all) / static_cast<double>(count);
  outcome.compile_ms = std::max(0.0, first - outcome.ms);
  return {std::move(outcome)};
}

// --- errors --------------------------------------------------------------------------------------

struct Results {
  Forward forward;
  std::optional<Backward> backward;
};

Results compute(const Options& options, const Data& data, bool with_backward,
                const std::shared_ptr<Executor>& executor) {
  const Attention attention = compile(options);
  const Inputs inputs{data.q, data.k, data.v};
  const Call call{.executor = executor, .lse = true};
  Results results{.forward = attention.forward(inputs, call), .backward = {}};
  if (with_backward) {
    const Saved saved{results.forward.out, results.forward.lse};
    results.backward = attention.backward(inputs, saved, data.dout, std::nullopt, call);
  }
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

void compare(PassOutcome& outcome, std::string name, const Tensor& result, const Tensor& wanted) {
  const double error = error_of(result, wanted);
  if (!outcome.worst.empty() && error <= outcome.error) return;
  outcome.error = error;
  outcome.worst = std::move(name);
}

void check(std::vector<PassOutcome>& passes, const Variant& variant, const Sizes& sizes,
           const std::shared_ptr<Executor>& executor) {
  const bool backward = !variant.decodes;
  const Prepared ready = variant.prepare(sizes, DType::f32);
  Prepared exact_ready = variant.prepare(sizes, DType::f64);
  exact_ready.options.backend = Backend::reference;
  const Data data = random_data(sizes, ready.key_heads);
  const Results results = compute(ready.options, data, backward, executor);
  const Results exact =
      compute(exact_ready.options, converted(data, DType::f64), backward, executor);

  compare(passes.front(), "out", results.forward.out, exact.forward.out);
  if (!backward) return;
  PassOutcome& outcome = passes.back();
  compare(outcome, "dq", results.backward->dq, exact.backward->dq);
  compare(outcome, "dk", results.backward->dk, exact.backward->dk);
  compare(outcome, "dv", results.backward->dv, exact.backward->dv);
  for (const CaptureGradient& capture : results.backward->captures)
    compare(outcome, "d" + capture.name, capture.gradient, exact.backward->of(capture.name));
}

}  // namespace

DemoRunner::DemoRunner(std::shared_ptr<Executor> executor)
    : executor_(std::move(executor)), peak_(plan::host_target(), DType::f32, *executor_) {
  for (int i = 0; i < effort.most; ++i) peak_.measure();  // clocks rise, and its best is known
}

std::vector<PassOutcome> DemoRunner::time(const Prepared& ready, const Variant& variant,
                                          const Sizes& sizes, double visible,
                                          const Report& report) {
  if (variant.decodes)
    return time_decoding(ready.options, sizes, ready.key_heads, executor_, report);
  const double pairs = visible * static_cast<double>(sizes.batch * sizes.heads) *
                       static_cast<double>(sizes.queries) * static_cast<double>(sizes.keys);
  return time_training(ready.options, random_data(sizes, ready.key_heads), executor_, peak_, pairs,
                       report);
}

const std::vector<PassOutcome>& DemoRunner::dense(const Variant& variant, const Sizes& sizes,
                                                  std::int64_t key_heads, const Report& report) {
  const std::vector<std::int64_t> key{sizes.batch,   sizes.heads, key_heads,
                                      sizes.queries, sizes.keys,  sizes.dim};
  const auto found = dense_.find(key);
  if (found != dense_.end() && std::ranges::all_of(found->second, &PassOutcome::steady))
    return found->second;
  Prepared plain;
  plain.key_heads = key_heads;
  const auto report_dense = [&](std::string_view step) {
    report(std::string("dense ").append(step));
  };
  return dense_[key] = time(plain, variant, sizes, 1, report_dense);
}

void DemoRunner::judge(std::vector<PassOutcome>& passes) const {
  const auto dropped = [&](double loop) { return loop > 0 && loop < still_steady * peak_.best(); };
  for (PassOutcome& pass : passes) {
    if (pass.steady && dropped(pass.loop)) {
      pass.steady = false;
      pass.share *= pass.loop / peak_.best();
    }
    if (dropped(pass.dense_loop)) pass.dense_steady = false;
  }
}

Outcome DemoRunner::run(const Variant& variant, const Sizes& sizes, const Report& report) {
  Outcome outcome{.sizes = variant.timed_at ? variant.timed_at(sizes) : sizes};
  const Prepared ready = variant.prepare(outcome.sizes, DType::f32);
  outcome.key_heads = ready.key_heads;
  report("mask");
  outcome.visible = visible_share(ready.options.mask, outcome.sizes, *executor_);
  outcome.picture = mask_thumbnail(ready.options.mask, outcome.sizes, *executor_);
  outcome.passes = time(ready, variant, outcome.sizes, outcome.visible, report);

  const std::vector<PassOutcome>& plain = dense(variant, outcome.sizes, ready.key_heads, report);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    outcome.passes[i].dense_ms = plain[i].ms;
    outcome.passes[i].dense_steady = plain[i].steady;
    outcome.passes[i].dense_loop = plain[i].loop;
  }
  report("comparing with f64");
  check(outcome.passes, variant, variant.decodes ? outcome.sizes : sizes, executor_);
  return outcome;
}

}  // namespace treadle::cli
