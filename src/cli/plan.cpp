// treadle plan: how a call would be spread over ranks.
//
// In: a mask, sizes, how many ranks. Out: what the planner looked at and took, perhaps a picture file.
#include <fmt/core.h>

#include <memory>
#include <string>

#include "base/error.h"
#include "cli/capture_option.h"
#include "cli/capture_values.h"
#include "cli/commands.h"
#include "cli/mask_patterns.h"
#include "cli/numbers.h"
#include "cli/plan_picture.h"
#include "cli/planned_call.h"
#include "cli/table.h"
#include "cli/traced_mask.h"
#include "treadle/mods.h"

namespace treadle::cli {
namespace {

using distributed::Assignment;
using distributed::Candidate;

std::string title_of(const PlanRequest& request) {
  std::string title = request.pattern;
  for (const std::string& parameter : request.parameters) title += ' ' + parameter;
  if (request.expression.empty()) return title;
  return title.empty() ? request.expression : title + " && " + request.expression;
}

MaskMod mask_of(const PlanRequest& request, const backend::Sizes& sizes) {
  const std::vector<Capture> captures = captures_with_values("plan", request.captures);
  MaskMod mask;
  if (!request.pattern.empty())
    mask = pattern_mask(request.pattern, request.parameters, sizes.extent());
  if (request.expression.empty()) return mask;
  const MaskMod text = parse(request.expression, captures);
  return request.pattern.empty() ? text : mask & text;
}

backend::Sizes sizes_of(const PlanRequest& request) {
  const auto slash = request.heads.find('/');
  const std::string where = fmt::format("plan: --heads \"{}\"", request.heads);
  const std::int64_t heads = integer_from(where, request.heads.substr(0, slash));
  const std::int64_t key_heads =
      slash == std::string::npos ? heads : integer_from(where, request.heads.substr(slash + 1));
  if (heads < 1 || key_heads < 1 || heads % key_heads != 0)
    base::fail("{}: {} is not a multiple of {}; key heads are shared by equally many heads", where,
               heads, key_heads);
  return {.batch = request.batch,
          .heads = heads,
          .key_batch = request.batch,
          .key_heads = key_heads,
          .queries = request.queries,
          .keys = request.keys == 0 ? request.queries : request.keys,
          .dim = request.dim,
          .value_dim = request.dim};
}

double share(std::int64_t bytes, std::int64_t all) {
  return all == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(all);
}

void print_json(const PlanRequest& request, const backend::Sizes& sizes, const Assignment& plan) {
  Table table({"mask",
               "queries",
               "keys",
               "batch",
               "heads",
               "key_heads",
               "dim",
               "dtype",
               "ranks",
               "head_groups",
               "route",
               "taken",
               "balance",
               "forward_bytes",
               "backward_bytes",
               "all_gather_bytes",
               "forward_share",
               "backward_share",
               "messages",
               "memory",
               "forward_ms",
               "backward_ms"});
  const auto number = [](double x) { return Cell(x, fmt::format("{:.4g}", x)); };
  for (const Candidate& one : plan.candidates) {
    table.add({title_of(request),
               sizes.queries.count(),
               sizes.keys.count(),
               sizes.batch,
               sizes.heads,
               sizes.key_heads,
               sizes.dim,
               request.dtype,
               request.ranks,
               one.head_groups,
               name_of(one.route),
               &one == &plan.candidates.front(),
               number(one.balance),
               one.forward_bytes,
               one.backward_bytes,
               plan.all_gather,
               number(share(one.forward_bytes, plan.all_gather)),
               number(share(one.backward_bytes, plan.all_gather)),
               one.messages,
               one.memory,
               number(one.forward * 1e3),
               number(one.backward * 1e3)});
  }
  print(table, Format::json);
}

}  // namespace

void plan(const PlanRequest& request) {
  if (request.expression.empty() && request.pattern.empty())
    base::fail("plan: neither a mask nor a --pattern is given; treadle plan --help shows both");
  if (request.pattern.empty() && !request.parameters.empty())
    base::fail("plan: --param \"{}\" is given without --pattern", request.parameters[0]);
  if (request.queries == 0) base::fail("plan: --q, the number of queries, is needed");
  if (request.ranks == 0) base::fail("plan: --ranks, how many there are, is needed");
  const DType dtype = dtype_from(fmt::format("plan: --dtype \"{}\"", request.dtype), request.dtype);
  const backend::Sizes sizes = sizes_of(request);
  if (!request.output.empty()) picture::check_picture_path(request.output);
  const std::shared_ptr<Executor> executor = tbb_executor();
  const MaskMod mask = mask_of(request, sizes);
  const PlannedCall call = planned_call("plan", mask, sizes, dtype, *executor);
  const Assignment assigned = call.assign(
      request.ranks,
      {.gigabits = request.gigabits,
       .teraflops = request.teraflops,
       .excess = request.excess,
       .head_groups = request.head_groups,
       .sums = request.per_rank ? distributed::Sums::per_rank : distributed::Sums::same_bits});
  if (!request.output.empty())
    write_sheet(plan_picture(title_of(request), traced(mask).mask, call, assigned, request.ranks,
                             *executor),
                request.output);
  if (request.json) return print_json(request, sizes, assigned);
  fmt::print("{}\n{} queries x {} keys, {} sequence{}, heads {}/{} of {}, {}, {} ranks\n\n{}",
             title_of(request), sizes.queries.count(), sizes.keys.count(), sizes.batch,
             sizes.batch == 1 ? "" : "s", sizes.heads, sizes.key_heads, sizes.dim, request.dtype,
             request.ranks, assigned.describe());
}

}  // namespace treadle::cli
