// The interpreter asked about every pair of a poisoned tile, until one explains it.
#include "run/poison.h"

#include <algorithm>

#include "base/element.h"
#include "base/error.h"
#include "ir/interpret.h"

namespace treadle::run {
namespace {

// The score of a query and a key, given by position.
double dot(const PoisonProblem& problem, std::int64_t b, std::int64_t h, std::int64_t q,
           std::int64_t kv) {
  const layout::Extent& extent = problem.layout->extent();
  const ConstView& k = problem.k;
  const std::int64_t key_head = h / (problem.q.size(1) / k.size(1));
  const std::int64_t from_q = b * problem.q.stride(0) + h * problem.q.stride(1) +
                              (q - extent.queries.begin) * problem.q.stride(2);
  const std::int64_t from_k = (k.size(0) == 1 ? 0 : b) * k.stride(0) + key_head * k.stride(1) +
                              (kv - extent.keys.begin) * k.stride(2);
  double sum = 0;
  for (std::int64_t d = 0; d < k.size(3); ++d)
    sum +=
        base::load_double(problem.q.data(), problem.q.dtype(), from_q + d * problem.q.stride(3)) *
        base::load_double(k.data(), k.dtype(), from_k + d * k.stride(3));
  return sum * problem.scale;
}

}  // namespace

void report(const PoisonProblem& problem, const Poisoned& where) {
  const layout::Tiles& tiles = problem.layout->tiles();
  std::vector<std::int64_t> queries;
  for (std::int64_t i = 0; i < tiles.size(where.tile); ++i)
    queries.push_back(tiles.query(where.tile, i));
  std::ranges::sort(queries);
  std::vector<std::int64_t> keys;
  std::vector<bool> asked;  // whether the mask is asked: not in full runs
  for (const layout::Run& run : problem.layout->runs(where.b, where.h, where.tile)) {
    for (std::int64_t key = run.begin(); key < run.end(); ++key) {
      keys.push_back(key);
      asked.push_back(!run.full());
    }
  }
  const auto count = static_cast<std::int64_t>(keys.size());
  ir::Interpreter<double> mask(problem.mask, problem.mask_memory);
  ir::Interpreter<double> score_mod(problem.score_mod, problem.score_memory);
  const auto poisoned = [](const auto& run, std::size_t n) {
    return !run.poison(0).empty() && run.poison(0)[n] != 0;
  };
  for (const std::int64_t q : queries) {
    const auto fail = [&](const auto& run, std::string_view what, std::size_t n) {
      base::fail_mod("{}: {}, at (b {}, h {}, q {}, kv {})", what,
                     run.poison_reason(0, static_cast<std::int64_t>(n)), where.b, where.h, q,
                     keys[n]);
    };
    mask({.b = {&where.b, 1}, .h = {&where.h, 1}, .q = {&q, 1}, .kv = keys}, count);
    for (std::size_t n = 0; n < keys.size(); ++n)
      if (asked[n] && poisoned(mask, n)) fail(mask, "mask", n);
    std::vector<double> scores;
    for (const std::int64_t key : keys) scores.push_back(dot(problem, where.b, where.h, q, key));
    score_mod({.score = scores, .b = {&where.b, 1}, .h = {&where.h, 1}, .q = {&q, 1}, .kv = keys},
              count);
    for (std::size_t n = 0; n < keys.size(); ++n) {
      const bool visible = !asked[n] || mask.booleans(0)[n] != 0;
      if (visible && poisoned(score_mod, n)) fail(score_mod, "score mod", n);
    }
  }
  base::internal_error(
      "forward: poison in batch {}, head {}, tile {} that the interpreter does not find", where.b,
      where.h, where.tile);
}

}  // namespace treadle::run
