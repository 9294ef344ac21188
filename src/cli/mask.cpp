// treadle mask: draws a mask and says how much work it leaves.
//
// In: a mask as text or by the name of a pattern, captures with values. Out: a drawing, numbers,
// perhaps a picture file. Read mask() first.
#include <fmt/core.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dump.h"
#include "base/error.h"
#include "cli/capture_values.h"
#include "cli/commands.h"
#include "cli/mask_patterns.h"
#include "cli/order_option.h"
#include "cli/table.h"
#include "cli/traced_mask.h"
#include "layout/choose.h"
#include "layout/failure.h"
#include "layout/statistics.h"
#include "picture/picture.h"
#include "plan/mod_facts.h"
#include "treadle/mods.h"

namespace treadle::cli {
namespace {

using layout::Extent;
using layout::Layout;
using layout::Mask;

constexpr std::int64_t usual_height = 48;  // three vectors of AVX-512
constexpr std::int64_t block = 128;        // what FlexAttention's masks are made of

// What was found out about a mask. Densities are shares of all pairs.
struct MaskReport {
  std::string title;
  Extent extent;
  Layout layout;
  double build_ms = 0;
  double visible = 0, runs = 0, blocks = 0;
};

// --- the mask ------------------------------------------------------------------------------------

std::string title_of(const MaskRequest& request) {
  std::string title = request.pattern;
  for (const std::string& parameter : request.parameters) title += ' ' + parameter;
  if (request.expression.empty()) return title.empty() ? "true" : title;
  return title.empty() ? request.expression : title + " && " + request.expression;
}

// Pattern and text together: what both show, for the wanted batch and head.
MaskMod mask_of(const MaskRequest& request, const Extent& extent) {
  MaskMod mask;
  if (!request.pattern.empty()) {
    mask = pattern_mask(request.pattern, request.parameters, extent);
  } else if (!request.parameters.empty()) {
    base::fail("mask: --param \"{}\" is given without --pattern", request.parameters[0]);
  }
  const std::vector<Capture> captures = captures_with_values("mask", request.captures);
  if (!request.expression.empty()) {
    const MaskMod text = parse(request.expression, captures);
    mask = request.pattern.empty() ? text : mask & text;
  }
  return [=, b0 = request.batch, h0 = request.head](Index b, Index h, Index q, Index kv) {
    // Numbers in the shape of indices; simplify() leaves nothing of b and h.
    return mask(b * 0 + b0, h * 0 + h0, q, kv);
  };
}

layout::Tiles tiles_of(const MaskRequest& request, const Mask& mask, const Extent& extent,
                       Executor& executor) {
  const bool choose = request.order == "auto" || (request.order.empty() && request.tile == 0);
  if (choose) {
    if (request.tile != 0) {
      base::fail("mask: --order auto chooses the height of the tiles too; leave --tile {} out",
                 request.tile);
    }
    const layout::Choice choice = choose_order(mask, extent, {}, executor);
    return {choice.order, extent.queries.count(), choice.height};
  }
  const layout::Order order =
      request.order.empty() ? layout::Order() : order_from("mask", request.order);
  return {order, extent.queries.count(), request.tile == 0 ? usual_height : request.tile};
}

// Fails as a call would: at the first pair where the mask reads outside a capture.
void check_pairs(const MaskRequest& request, const Mask& mask, const Layout& layout,
                 Executor& executor) {
  const bool may_fail =
      plan::find_facts(mask.graph, mask.memory, layout.extent(), layout.tiles().order()).reads ==
      plan::Reads::checked;
  if (!may_fail) return;
  if (const auto failure = find_failure(mask, layout, executor)) {
    base::fail_mod("mask: {}, at (b {}, h {}, q {}, kv {})", failure->reason, request.batch,
                   request.head, failure->q, failure->kv);
  }
}

MaskReport look_at(const MaskRequest& request, const Mask& mask, const Extent& extent,
                   Executor& executor) {
  MaskReport report{.title = title_of(request), .extent = extent};
  const layout::Tiles tiles = tiles_of(request, mask, extent, executor);
  const auto start = std::chrono::steady_clock::now();
  report.layout = build(mask, extent, tiles, executor);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  report.build_ms = took.count();
  if (base::dump_wanted(base::Dump::layout))
    base::dump(base::Dump::layout, "mask", to_text(report.layout));
  check_pairs(request, mask, report.layout, executor);
  const auto all = static_cast<double>(report.layout.all_pairs());
  report.visible = static_cast<double>(visible_pairs(mask, report.layout, executor)) / all;
  report.runs = static_cast<double>(report.layout.run_pairs()) / all;
  report.blocks = block_density(mask, extent, block, executor);
  return report;
}

// --- printing ------------------------------------------------------------------------------------

std::string percent(double share) { return fmt::format("{:.3g} %", 100 * share); }

std::string work_of(const MaskReport& report) {
  return fmt::format("visible {}, runs {}, {} x {} blocks {}", percent(report.visible),
                     percent(report.runs), block, block, percent(report.blocks));
}

void print_json(const MaskReport& report) {
  const layout::Tiles& tiles = report.layout.tiles();
  Table table({"mask", "queries", "keys", "order", "tile", "visible", "runs", "blocks_128",
               "run_count", "bytes", "build_ms"});
  const auto share = [](double value) { return Cell(value, percent(value)); };
  table.add({report.title,
             report.extent.queries.count(),
             report.extent.keys.count(),
             to_text(tiles.order()),
             tiles.height(),
             share(report.visible),
             share(report.runs),
             share(report.blocks),
             report.layout.run_count(),
             report.layout.bytes(),
             {report.build_ms, fmt::format("{:.3g}", report.build_ms)}});
  print(table, Format::json);
}

void print_text(const MaskReport& report, const picture::Picture& drawing) {
  const layout::Tiles& tiles = report.layout.tiles();
  fmt::print("{}\n{} queries x {} keys; a cell is {} x {}\n\n{}\n", report.title,
             report.extent.queries.count(), report.extent.keys.count(),
             drawing.grid.queries_per_row, drawing.grid.keys_per_column, to_terminal(drawing));
  fmt::print("· empty  ▒ partial  █ full\n");
  fmt::print("{}; {} runs, {} bytes, built in {:.3g} ms; order: {}, tiles of {}\n", work_of(report),
             report.layout.run_count(), report.layout.bytes(), report.build_ms,
             to_text(tiles.order()), tiles.height());
}

}  // namespace

void mask(const MaskRequest& request) {
  if (request.list) return print(pattern_table(), request.json ? Format::json : Format::text);
  if (request.expression.empty() && request.pattern.empty()) {
    base::fail("mask: neither a mask nor a --pattern is given; treadle mask --help shows both");
  }
  if (request.queries == 0) base::fail("mask: --q, the number of queries, is needed");
  if (!request.output.empty()) picture::check_picture_path(request.output);

  const Extent extent{.queries = request.queries,
                      .keys = request.keys == 0 ? request.queries : request.keys};
  const std::shared_ptr<Executor> executor = tbb_executor();
  const TracedMask traced_mask = traced(mask_of(request, extent));
  const MaskReport report = look_at(request, traced_mask.mask, extent, *executor);
  const auto drawn = [&](const picture::Grid& grid) {
    return draw(traced_mask.mask, extent, 0, 0, grid, *executor);
  };
  if (!request.output.empty()) {
    picture::Picture picture = drawn(picture::image_grid(extent));
    picture.title = report.title;
    picture.work = work_of(report);
    write_picture(picture, request.output);
  }
  if (request.json) {
    print_json(report);
  } else {
    print_text(report, drawn(picture::terminal_grid(extent)));
  }
}

}  // namespace treadle::cli
