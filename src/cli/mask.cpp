// treadle mask: draws a mask and says how much work it leaves.
//
// In: a mask as text or by the name of a pattern, captures with values. Out: a drawing, numbers,
// perhaps a picture file. Read mask() first.
#include <fmt/core.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/mask_passes.h"
#include "base/dump.h"
#include "base/error.h"
#include "cli/capture_values.h"
#include "cli/commands.h"
#include "cli/mask_patterns.h"
#include "cli/mask_report.h"
#include "cli/order_option.h"
#include "cli/traced_mask.h"
#include "layout/failure.h"
#include "layout/statistics.h"
#include "picture/picture.h"
#include "plan/mod_facts.h"
#include "treadle/mods.h"

namespace treadle::cli {
namespace {

using layout::Extent;
using layout::Mask;

constexpr std::int64_t usual_height = 48;  // three vectors of AVX-512

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

// --- its terms -----------------------------------------------------------------------------------

// With an order or a height of the user's: one pass. Else those that a call would make.
bool is_chosen(const MaskRequest& request) {
  if (request.order == "auto" && request.tile != 0) {
    base::fail("mask: --order auto chooses the height of the tiles too; leave --tile {} out",
               request.tile);
  }
  return request.order == "auto" || (request.order.empty() && request.tile == 0);
}

TermReport given_term(const MaskRequest& request, const Mask& mask, const Extent& extent,
                      Executor& executor) {
  const layout::Order order =
      request.order.empty() ? layout::Order() : order_from("mask", request.order);
  const layout::Tiles tiles(order, extent.queries, request.tile == 0 ? usual_height : request.tile);
  TermReport term{.mask = mask, .layout = build(mask, extent, tiles, executor)};
  if (base::dump_wanted(base::Dump::layout))
    base::dump(base::Dump::layout, "mask", to_text(term.layout));
  return term;
}

void add_terms(MaskReport& report, const MaskRequest& request, const Mask& mask,
               Executor& executor) {
  backend::cpu::ChosenPasses chosen;
  const bool choose = is_chosen(request);
  if (choose) {
    backend::cpu::KeptChoices kept;
    chosen = choose_passes(mask, backend::terms_of(mask.graph, mask.memory), report.extent, {},
                           kept, executor);
  }
  const auto start = std::chrono::steady_clock::now();
  if (choose) {
    auto built = build_terms(chosen, report.extent, executor);
    for (std::size_t i = 0; i < built.size(); ++i)
      report.terms.push_back({.mask = chosen.terms[i].mask,
                              .layout = std::move(built[i].layout),
                              .pass = chosen.terms[i].pass});
  } else {
    report.terms.push_back(given_term(request, mask, report.extent, executor));
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  report.build_ms = took.count();
}

// Fails as a call would: at the first pair where the mask reads outside a capture.
void check_pairs(const MaskRequest& request, const TermReport& term, Executor& executor) {
  const layout::Layout& layout = term.layout;
  const bool may_fail =
      plan::find_facts(term.mask.graph, term.mask.memory, layout.extent(), layout.tiles().order())
          .reads == plan::Reads::checked;
  if (!may_fail) return;
  if (const auto failure = find_failure(term.mask, layout, executor)) {
    base::fail_mod("mask: {}, at (b {}, h {}, q {}, kv {})", failure->reason, request.batch,
                   request.head, failure->q, failure->kv);
  }
}

MaskReport look_at(const MaskRequest& request, const Mask& mask, const Extent& extent,
                   Executor& executor) {
  MaskReport report{.title = title_of(request), .extent = extent};
  add_terms(report, request, mask, executor);
  for (TermReport& term : report.terms) {
    check_pairs(request, term, executor);
    const auto all = static_cast<double>(term.layout.all_pairs());
    term.visible = static_cast<double>(visible_pairs(term.mask, term.layout, executor)) / all;
    term.runs = static_cast<double>(term.layout.run_pairs()) / all;
  }
  report.blocks = block_density(mask, extent, square_block, executor);
  return report;
}

picture::Picture drawing_of(const MaskReport& report, const Mask& mask, const picture::Grid& grid,
                            Executor& executor) {
  picture::Picture picture = draw(mask, report.extent, 0, 0, grid, executor);
  if (report.terms.size() < 2) return picture;
  std::vector<picture::Pass> passes;
  for (std::size_t i = 0; i < report.terms.size(); ++i)
    passes.push_back({name_of(report, i), report.terms[i].mask});
  tell_apart(picture, passes, report.extent, 0, 0, executor);
  return picture;
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
    return drawing_of(report, traced_mask.mask, grid, *executor);
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
