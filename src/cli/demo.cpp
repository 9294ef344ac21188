// treadle demo: a handful of variants at a real size, with times and errors. What `./dev demo`
// runs.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/demo_run.h"
#include "cli/demo_variants.h"
#include "cli/progress.h"
#include "cli/table.h"

namespace treadle::cli {
namespace {

struct Row {
  Variant variant;
  std::int64_t key_heads = 0;
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
  const std::vector<Variant> variants = chosen(request.variants);
  std::vector<Row> rows;
  for (const Variant& variant : variants) {
    const auto report = [&](std::string_view step) {
      progress.show(
          fmt::format("[{}/{}] {}: {}", rows.size() + 1, variants.size(), variant.name, step));
    };
    const std::int64_t key_heads = variant.prepare(request.sizes, DType::f32).key_heads;
    rows.push_back({variant, key_heads, run_variant(variant, request.sizes, executor, report)});
  }
  return rows;
}

// "8", or "8/2" when groups of heads share keys.
std::string heads_text(std::int64_t heads, std::int64_t key_heads) {
  return heads == key_heads ? fmt::format("{}", heads) : fmt::format("{}/{}", heads, key_heads);
}

Table table_of(const std::vector<Row>& rows, const Sizes& sizes, int threads) {
  constexpr auto only_in_json = Column::Shown::only_in_json;
  Table table({"variant",
               "what",
               "heads",
               "visible",
               {"forward_ms", "forward ms"},
               {"backward_ms", "backward ms"},
               {"largest_error", "largest error"},
               {"worst", "in"},
               {"batch", only_in_json},
               {"key_heads", only_in_json},
               {"queries", only_in_json},
               {"keys", only_in_json},
               {"dim", only_in_json},
               {"threads", only_in_json}});
  for (const auto& [variant, key_heads, outcome] : rows) {
    table.add({variant.name,
               variant.what,
               {sizes.heads, heads_text(sizes.heads, key_heads)},
               {outcome.visible, fmt::format("{:.1f} %", 100 * outcome.visible)},
               {outcome.forward_ms, fmt::format("{:.1f}", outcome.forward_ms)},
               {outcome.backward_ms, fmt::format("{:.1f}", outcome.backward_ms)},
               {outcome.error, fmt::format("{:.1e}", outcome.error)},
               outcome.worst,
               sizes.batch,
               key_heads,
               sizes.queries,
               sizes.keys,
               sizes.dim,
               threads});
  }
  return table;
}

void print_text(const std::vector<Row>& rows, const Sizes& sizes, int threads) {
  fmt::print("f32, batch {}, heads {}, queries {}, keys {}, dim {}, {} thread{}, backend: cpu\n\n",
             sizes.batch, sizes.heads, sizes.queries, sizes.keys, sizes.dim, threads,
             threads == 1 ? "" : "s");
  print(table_of(rows, sizes, threads), Format::text);
  fmt::print(
      "\nvisible: part of the (query, key) pairs. largest error: of out and all gradients, against "
      "the same\n"
      "computation in f64, in units of the largest number in that tensor.\n");
}

}  // namespace

void demo(DemoRequest request) {
  request.sizes.queries = request.queries > 0 ? request.queries : request.sizes.keys;
  const std::shared_ptr<Executor> executor = tbb_executor(request.threads);
  const std::vector<Row> rows = run_all(request, executor);
  if (request.json) {
    print(table_of(rows, request.sizes, executor->threads()), Format::json);
  } else {
    print_text(rows, request.sizes, executor->threads());
  }
  for (const Row& row : rows) {
    if (row.outcome.error <= request.tolerance) continue;
    base::fail("demo: {}: {} has an error of {:.1e}; at most {:.1e} is right", row.variant.name,
               row.outcome.worst, row.outcome.error, request.tolerance);
  }
}

}  // namespace treadle::cli
