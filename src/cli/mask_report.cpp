// Prints what was found out about a mask.
//
// In: a report, a drawing. Out: text or JSON on stdout.
#include "cli/mask_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "cli/table.h"

namespace treadle::cli {
namespace {

std::string percent(double share) { return fmt::format("{:.3g} %", 100 * share); }

Cell share(double value) { return {value, percent(value)}; }

std::string order_of(const TermReport& term) { return to_text(term.layout.tiles().order()); }

template <class T, class F>
T sum(const MaskReport& report, T zero, const F& of_term) {
  for (const TermReport& term : report.terms) zero += of_term(term);
  return zero;
}

std::int64_t run_count(const MaskReport& report) {
  return sum(report, std::int64_t{0}, [](const TermReport& p) { return p.layout.run_count(); });
}

std::int64_t bytes(const MaskReport& report) {
  return sum(report, std::int64_t{0}, [](const TermReport& p) { return p.layout.bytes(); });
}

Table table_of_terms(const MaskReport& report) {
  Table table(
      {"term", "pass", "order", "tiles of", "tiles", "runs", "pairs visible", "in runs", "useful"});
  for (std::size_t i = 0; i < report.terms.size(); ++i) {
    const TermReport& term = report.terms[i];
    const layout::Tiles& tiles = term.layout.tiles();
    table.add({i + 1, term.pass + 1, order_of(term), tiles.height(), tiles.count(),
               term.layout.run_count(), share(term.visible), share(term.runs),
               share(useful(term.visible, term.runs))});
  }
  return table;
}

}  // namespace

double MaskReport::visible() const {
  return sum(*this, 0.0, [](const TermReport& term) { return term.visible; });
}

double MaskReport::runs() const {
  return sum(*this, 0.0, [](const TermReport& term) { return term.runs; });
}

double useful(double visible, double runs) { return runs == 0 ? 1 : visible / runs; }

std::string work_of(const MaskReport& report) {
  return fmt::format("visible {}, runs {}, {} x {} blocks {}; useful work {}",
                     percent(report.visible()), percent(report.runs()), square_block, square_block,
                     percent(report.blocks), percent(useful(report.visible(), report.runs())));
}

std::string name_of(const MaskReport& report, std::size_t term) {
  const TermReport& found = report.terms[term];
  return fmt::format("term {} in pass {}: {}, tiles of {}", term + 1, found.pass + 1,
                     order_of(found), found.layout.tiles().height());
}

void print_json(const MaskReport& report) {
  std::string orders;
  std::int64_t tallest = 0;
  for (const TermReport& term : report.terms) {
    orders += (orders.empty() ? "" : "; ") + order_of(term);
    tallest = std::max(tallest, term.layout.tiles().height());
  }
  Table table({"mask", "queries", "keys", "terms", "passes", "order", "tile", "visible", "runs",
               "useful", "blocks_128", "run_count", "bytes", "build_ms"});
  table.add({report.title,
             report.extent.queries.count(),
             report.extent.keys.count(),
             report.terms.size(),
             report.passes(),
             orders,
             tallest,
             share(report.visible()),
             share(report.runs()),
             share(useful(report.visible(), report.runs())),
             share(report.blocks),
             run_count(report),
             bytes(report),
             {report.build_ms, fmt::format("{:.3g}", report.build_ms)}});
  print(table, Format::json);
}

void print_text(const MaskReport& report, const picture::Picture& drawing) {
  fmt::print("{}\n{} queries x {} keys; a cell is {} x {}\n\n{}\n", report.title,
             report.extent.queries.count(), report.extent.keys.count(),
             drawing.grid.queries_per_row, drawing.grid.keys_per_column, to_terminal(drawing));
  fmt::print("{}", terminal_legend(drawing));
  fmt::print("{}; {} runs, {} bytes, built in {:.3g} ms", work_of(report), run_count(report),
             bytes(report), report.build_ms);
  if (report.terms.size() > 1) {
    fmt::print("\n\n{}", table_of_terms(report).to_text());
  } else {
    fmt::print("; order: {}, tiles of {}\n", order_of(report.terms.front()),
               report.terms.front().layout.tiles().height());
  }
}

}  // namespace treadle::cli
