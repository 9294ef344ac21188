// Compile cases: what a kernel costs before it runs, and what a call costs beside it.
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>

#include "api/stages.h"
#include "backend/cpu/kernel_sets.h"
#include "cli/bench_case.h"
#include "cli/random_tensor.h"
#include "jit/engine.h"
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

// A causal call whose score mod, if any, reads a table by distance.
struct Causal {
  backend::Program program;
  backend::cpu::Forms forms;
  backend::cpu::ForwardKind kind;

  Causal(std::int64_t dim, bool biased) {
    static const Tensor table(DType::f32, {1});
    Options options;
    options.mask = mods::causal();
    if (biased) {
      options.score_mod = [t = Capture("table", table)](Score s, Index, Index, Index q, Index kv) {
        return s + t(q - kv);
      };
      options.gradients = {"table"};
    }
    program = api::stages_of(options).program;
    forms = backend::cpu::forms_of(program);
    const plan::ModFacts facts{.narrow = true, .reads = plan::Reads::proven, .consecutive = true};
    kind = {.target = plan::host_target(),
            .dim = dim,
            .value_dim = dim,
            .score_facts = facts,
            .mask_facts = facts};
    kind.score_facts.unit_stride = std::vector<bool>(forms.score.graph.slots().size(), true);
  }
};

Measured compile_time(std::int64_t dim, bool masked, const std::string& folder) {
  Measured measured{.key_heads = 1};
  measured.dim = measured.value_dim = dim;
  measured.dtype = "f32";
  const Causal causal(dim, false);
  const auto once = [&] {
    jit::Engine engine({.cache_folder = folder});
    engine.get(
        backend::cpu::forward_spec(causal.program, causal.forms, causal.kind, {.masked = masked}));
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
  const Causal causal(dim, true);
  measured.ms = best_ms([&] {
    jit::Engine engine({});
    backend::cpu::KernelSets sets(engine, causal.program, causal.forms);
    const auto kernels = sets.backward({.forward = causal.kind,
                                        .derivative_facts = causal.kind.score_facts,
                                        .vectors = plan::most_vectors});
    kernels->masked.prepare();
    kernels->sum_dk.prepare();
    kernels->sum_dv.prepare();
  });
  measured.note = "P, dS and dQ; dK; dV";
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
