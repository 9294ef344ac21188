// Compile cases: what a kernel costs before it runs, and what a call costs beside it.
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>

#include "cli/bench_case.h"
#include "cli/random_tensor.h"
#include "ir/builder.h"
#include "jit/engine.h"
#include "passes/derive.h"
#include "passes/simplify.h"
#include "run/backward_kernels.h"
#include "treadle/attention.h"
#include "treadle/mods.h"

namespace treadle::cli {
namespace {

// A folder of its own, gone afterwards.
struct Folder {
  std::filesystem::path path;
  Folder()
      : path(std::filesystem::temp_directory_path() /
             ("treadle-bench-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

run::ForwardSpec causal_spec(std::int64_t dim) {
  ir::Builder make;
  const auto q = make.input(ir::Input::q), kv = make.input(ir::Input::kv);
  run::ForwardSpec spec{.target = plan::host_target(), .dim = dim, .value_dim = dim};
  spec.mask = make.finish({make(ir::Op::ge, q, kv)});
  spec.mask_facts = {.narrow = true, .checked = false, .consecutive = true, .unit_stride = {}};
  return spec;
}

Measured compile_time(std::int64_t dim, bool masked, const std::string& folder) {
  Measured measured{.key_heads = 1};
  measured.dim = measured.value_dim = dim;
  measured.dtype = "f32";
  const run::ForwardSpec spec = causal_spec(dim);
  const auto once = [&] {
    jit::Engine engine({.cache_folder = folder});
    run::ForwardKernels(engine, spec).block(plan::most_vectors, masked, false);
  };
  if (!folder.empty()) once();
  measured.ms = best_ms(once);
  return measured;
}

// The kernels of a causal backward whose score mod has a table to be learned.
Measured backward_compile_time(std::int64_t dim) {
  Measured measured{.key_heads = 1};
  measured.dim = measured.value_dim = dim;
  measured.dtype = "f32";
  ir::Builder make;
  const auto distance = make(ir::Op::sub, make.input(ir::Input::q), make.input(ir::Input::kv));
  const auto biased = make(ir::Op::add, make.input(ir::Input::score),
                           make.load({"table", DType::f32, 1}, {distance}));
  run::ForwardSpec spec = causal_spec(dim);
  const ir::Graph score_mod = passes::simplify(make.finish({biased}));
  spec.score = plan::score_form(score_mod);
  spec.score_facts = {.narrow = true, .checked = false, .consecutive = true, .unit_stride = {true}};
  const ir::Joint derivative = passes::derive(score_mod, {"table"});
  measured.ms = best_ms([&] {
    jit::Engine engine({});
    run::BackwardKernels kernels(engine, std::make_shared<run::ForwardKernels>(engine, spec),
                                 derivative, spec.score_facts, plan::most_vectors);
    kernels.slopes(true);
    kernels.reduce_k();
    kernels.reduce_v();
  });
  measured.note = "scores and slopes, dK, dV";
  return measured;
}

// A call on a problem so small that it does nothing but get there and back.
Measured warm_call(Executor& executor) {
  const Tensor x = random_tensor({1, 1, 4, 16}, 1);
  Options options;
  options.mask = mods::causal();
  const Attention attention = compile(options);
  const std::shared_ptr<Executor> shared(&executor, [](Executor*) {});
  const Inputs inputs{x, x, x};
  const Call call{.captures = {}, .executor = shared, .layout = attention.layout(inputs)};
  Tensor out(DType::f32, {1, 1, 4, 16});
  const ForwardViews results{out.view(), std::nullopt, std::nullopt};
  constexpr int calls = 1000;
  Measured measured{.queries = 4, .keys = 4};
  measured.dim = measured.value_dim = 16;
  measured.dtype = "f32";
  attention.forward_into(results, inputs, call);
  measured.ms = best_ms([&] {
                  for (int i = 0; i < calls; ++i) attention.forward_into(results, inputs, call);
                }) /
                calls;
  measured.note = "a whole call with a held layout";
  return measured;
}

}  // namespace

std::vector<BenchCase> compile_cases() {
  std::vector<BenchCase> cases;
  const auto add = [&](std::string name, std::function<Measured(Executor&)> run) {
    cases.push_back({"compile-" + name, "compile", std::move(run)});
  };
  for (const std::int64_t dim : {64, 128}) {
    const std::string suffix = "-d" + std::to_string(dim);
    add("cold-full" + suffix, [dim](Executor&) { return compile_time(dim, false, ""); });
    add("cold-causal" + suffix, [dim](Executor&) { return compile_time(dim, true, ""); });
    add("cold-backward" + suffix, [dim](Executor&) { return backward_compile_time(dim); });
  }
  add("disk", [](Executor&) {
    const Folder folder;
    return compile_time(64, true, folder.path.string());
  });
  add("warm-call", warm_call);
  return cases;
}

}  // namespace treadle::cli
