// treadle bench: times, sizes and shares, one row per case.
#include <fmt/core.h>
#include <fnmatch.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/bench_case.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/table.h"

namespace treadle::cli {
namespace {

std::vector<BenchCase> chosen(const std::string& pattern) {
  std::vector<BenchCase> cases;
  for (const auto& some :
       {loop_cases(), forward_cases(), listed_cases(), decode_cases(), paged_cases(),
        backward_cases(), sparse_cases(), layout_cases(), compile_cases(), plan_cases()})
    cases.insert(cases.end(), some.begin(), some.end());
  std::erase_if(
      cases, [&](const BenchCase& c) { return fnmatch(pattern.c_str(), c.name.c_str(), 0) != 0; });
  if (cases.empty()) base::fail("bench: no case is called \"{}\"; --list shows them", pattern);
  return cases;
}

Cell optional_cell(const std::optional<double>& value, const char* format) {
  return value ? Cell(*value, fmt::format(fmt::runtime(format), *value)) : Cell();
}

Cell mebibytes(const std::optional<std::int64_t>& value) {
  return value ? Cell(*value, fmt::format("{:.2f}", static_cast<double>(*value) / (1 << 20)))
               : Cell();
}

Table empty_table() {
  constexpr auto only_in_json = Column::Shown::only_in_json;
  return Table({"case",
                {"kind", only_in_json},
                "dtype",
                "B",
                "H",
                {"Hkv", only_in_json},
                "Sq",
                "Skv",
                "D",
                {"Dv", only_in_json},
                "density",
                {"run_density", "in runs"},
                "ms",
                {"gflops", "GFLOP/s"},
                "share",
                "error",
                {"bytes", "MiB"},
                {"build_bytes", "MiB to build"},
                "balance",
                "ratio",
                "note"});
}

void add_row(Table& table, const BenchCase& c, const Measured& m) {
  table.add({c.name,
             c.kind,
             m.dtype.empty() ? Cell() : Cell(m.dtype),
             m.batch,
             m.heads,
             m.key_heads,
             m.queries,
             m.keys,
             m.dim ? Cell(*m.dim) : Cell(),
             m.value_dim ? Cell(*m.value_dim) : Cell(),
             optional_cell(m.density, "{:.5f}"),
             optional_cell(m.run_density, "{:.5f}"),
             {m.ms, fmt::format(fmt::runtime(m.ms < 0.1 ? "{:.4f}" : "{:.2f}"), m.ms)},
             optional_cell(m.gflops, "{:.1f}"),
             m.share ? Cell(*m.share, fmt::format("{:.1f} %", *m.share * 100)) : Cell(),
             optional_cell(m.error, "{:.1e}"),
             mebibytes(m.bytes),
             mebibytes(m.build_bytes),
             optional_cell(m.balance, "{:.3f}"),
             optional_cell(m.ratio, m.balance ? "{:.4f}" : "{:.2f}"),
             m.note});
}

}  // namespace

void bench(const BenchRequest& request) {
  const std::vector<BenchCase> cases = chosen(request.pattern);
  if (request.list) {
    for (const BenchCase& c : cases) fmt::print("{}\n", c.name);
    return;
  }
  const std::shared_ptr<Executor> executor = tbb_executor(request.threads);
  Table table = empty_table();
  {
    const Progress progress;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      progress.show(fmt::format("[{}/{}] {}", i + 1, cases.size(), cases[i].name));
      add_row(table, cases[i], cases[i].run(*executor));
    }
  }
  print(table, request.json ? Format::json : Format::text);
}

}  // namespace treadle::cli
