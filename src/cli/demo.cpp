// treadle demo: a handful of variants at a real size, with pictures, times and errors. What
// `./dev demo` runs.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/demo_run.h"
#include "cli/demo_variants.h"
#include "cli/machine.h"
#include "cli/progress.h"
#include "cli/table.h"

namespace treadle::cli {
namespace {

struct Row {
  Variant variant;
  Outcome outcome;
};

std::vector<Variant> chosen(const std::vector<std::string>& names) {
  std::vector<Variant> variants = demo_variants();
  std::erase_if(variants, [&](const Variant& variant) {
    return !names.empty() && std::ranges::count(names, variant.name) == 0;
  });
  return variants;
}

std::vector<Row> run_all(const DemoRequest& request, const std::shared_ptr<Executor>& executor) {
  const Progress progress;
  progress.show("getting ready");
  DemoRunner runner(executor);
  const std::vector<Variant> variants = chosen(request.variants);
  std::vector<Row> rows;
  for (const Variant& variant : variants) {
    const auto report = [&](std::string_view step) {
      progress.show(
          fmt::format("[{}/{}] {}: {}", rows.size() + 1, variants.size(), variant.name, step));
    };
    rows.push_back({variant, runner.run(variant, request.sizes, report)});
  }
  for (Row& row : rows) runner.judge(row.outcome.passes);
  return rows;
}

// One object for each pass of a variant.
Table json_table(const std::vector<Row>& rows, int threads) {
  Table table({"variant", "what", "pass", "visible", "compile_ms", "ms", "share", "steady",
               "dense_ms", "largest_error", "worst", "batch", "heads", "key_heads", "queries",
               "keys", "dim", "threads"});
  for (const auto& [variant, outcome] : rows) {
    const Sizes& sizes = outcome.sizes;
    for (const PassOutcome& pass : outcome.passes) {
      table.add({variant.name,
                 variant.what,
                 pass.name,
                 {outcome.visible, ""},
                 {pass.compile_ms, ""},
                 {pass.ms, ""},
                 {pass.share, ""},
                 pass.steady,
                 {pass.dense_ms, ""},
                 {pass.error, ""},
                 pass.worst,
                 sizes.batch,
                 sizes.heads,
                 outcome.key_heads,
                 sizes.queries,
                 sizes.keys,
                 sizes.dim,
                 threads});
    }
  }
  return table;
}

// Three digits, behind "~" if other programs were in the way.
Cell milliseconds(double ms, bool steady = true) {
  const int digits = ms < 9.995 ? 2 : ms < 99.95 ? 1 : 0;
  return {ms, fmt::format("{}{:.{}f}", steady ? "" : "~", ms, digits)};
}

// Two lines for each variant, one for each pass: name and explanation, the halves of its picture.
Table text_table(const std::vector<Row>& rows, const Sizes& asked_for) {
  Table table(
      {"variant", "mask", "visible", "pass", "ms", "of peak", "dense ms", "compile ms", "error"});
  for (const auto& [variant, outcome] : rows) {
    const Sizes& sizes = outcome.sizes;
    std::string what = "  " + variant.what;
    if (sizes.keys != asked_for.keys)
      what += fmt::format(", {}k", static_cast<double>(sizes.keys) / 1024);
    for (std::size_t line = 0; line < 2; ++line) {
      std::vector<Cell> row{line == 0 ? variant.name : what, outcome.picture[line]};
      row.push_back(line == 0
                        ? Cell(outcome.visible, fmt::format("{:.1f} %", 100 * outcome.visible))
                        : Cell());
      if (line < outcome.passes.size()) {
        const PassOutcome& pass = outcome.passes[line];
        row.insert(
            row.end(),
            {pass.name, milliseconds(pass.ms, pass.steady),
             Cell(pass.share, fmt::format("{}{:.0f} %", pass.steady ? "" : "~", 100 * pass.share)),
             milliseconds(pass.dense_ms, pass.dense_steady),
             Cell(pass.compile_ms, fmt::format("{:.0f}", pass.compile_ms)),
             Cell(pass.error, fmt::format("{:.0e}", pass.error))});
      } else {
        row.resize(9);
      }
      table.add(std::move(row));
    }
  }
  return table;
}

constexpr const char* legend = R"text(
mask        queries go down, keys to the right; dotted: less than a quarter is visible
visible     share of the (query, key) pairs; the others cost nothing, or little
ms          a call when its kernels are compiled
of peak     share of the multiply-adds that this machine can do, masked pairs not counted;
            for decode, share of the speed at which it reads memory
dense ms    the same call without mask and score mod
compile ms  what the first call took longer; less if an earlier run left kernels on disk
error       largest difference from the same in f64, in units of the largest number;
            sparse is compared at the shorter length
)text";
constexpr const char* busy =
    R"text(~           other programs kept the machine busy: it can do better; try again when it is quiet
)text";
constexpr const char* next_steps = R"text(
Next, draw a mask of your own:  treadle mask "q >= kv && (q - kv < 64 || kv % 64 == 0)" --q 1024
or see what Treadle makes of it:  treadle explain "score * 2" --mask "q >= kv && q - kv < 64"
(the program is build/release/treadle; for Python, ./dev python and docs/python.md)
)text";

void print_text(const std::vector<Row>& rows, const Sizes& sizes, int threads) {
  fmt::print("f32, batch {}, heads {}, queries {}, keys {}, dim {}, {} thread{}, {}\n\n",
             sizes.batch, sizes.heads, sizes.queries, sizes.keys, sizes.dim, threads,
             threads == 1 ? "" : "s", this_machine().cpu);
  print(text_table(rows, sizes), Format::text);
  const bool steady = std::ranges::all_of(rows, [](const Row& row) {
    return std::ranges::all_of(row.outcome.passes, [](const PassOutcome& pass) {
      return pass.steady && pass.dense_steady;
    });
  });
  fmt::print("{}{}{}", legend, steady ? "" : busy, next_steps);
}

}  // namespace

void demo(DemoRequest request) {
  request.sizes.queries = request.queries > 0 ? request.queries : request.sizes.keys;
  const std::shared_ptr<Executor> executor = tbb_executor(request.threads);
  const std::vector<Row> rows = run_all(request, executor);
  if (request.json) {
    print(json_table(rows, executor->threads()), Format::json);
  } else {
    print_text(rows, request.sizes, executor->threads());
  }
  for (const Row& row : rows) {
    for (const PassOutcome& pass : row.outcome.passes) {
      if (pass.error <= request.tolerance) continue;
      base::fail("demo: {}: {} has an error of {:.1e}; at most {:.1e} is allowed", row.variant.name,
                 pass.worst, pass.error, request.tolerance);
    }
  }
}

}  // namespace treadle::cli
