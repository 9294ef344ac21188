// The interpreter asked about every pair of a poisoned tile, until one explains it. Read report()
// first.
#include "run/poison.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>

#include "base/element.h"
#include "base/error.h"
#include "ir/interpret.h"

namespace treadle::run {
namespace {

struct Query {
  std::int64_t position = 0, row = 0;  // what mods see; where it lies
};

// What kernels compute the score of a query and a key from: elements in their float, those of the
// query multiplied with the scale first. In fp64 it is the definition's.
template <class F>
F dot(const PoisonProblem& problem, std::int64_t b, std::int64_t h, std::int64_t row_of_q,
      std::int64_t kv) {
  const std::int64_t key_head = h / (problem.q.size(1) / problem.keys.heads());
  const KeyRows rows = problem.keys.rows(b, key_head, kv);
  const std::byte* row = rows.key(kv);
  const std::int64_t dim = problem.q.size(3);
  const std::int64_t from_q =
      b * problem.q.stride(0) + h * problem.q.stride(1) + row_of_q * problem.q.stride(2);
  const auto query = [&](std::int64_t d) {
    return base::load_double(problem.q.data(), problem.q.dtype(), from_q + d * problem.q.stride(3));
  };
  const auto key = [&](std::int64_t d) {
    const double number = base::load_double(row, problem.keys.key_type(), d);
    if (rows.key_scales == nullptr) return number;
    return static_cast<double>(static_cast<float>(number) * rows.key_scale(kv));
  };
  F sum = 0;
  if constexpr (std::is_same_v<F, double>) {
    for (std::int64_t d = 0; d < dim; ++d) sum += query(d) * key(d);
    return sum * problem.scale;
  } else {
    const F scale = static_cast<F>(problem.scale);
    for (std::int64_t d = 0; d < dim; ++d)
      sum = std::fma(static_cast<F>(query(d)) * scale, static_cast<F>(key(d)), sum);
    return sum;
  }
}

// Throws if the interpreter finds poison with scores in this float.
template <class F>
void look(const PoisonProblem& problem, const Poisoned& where, const std::vector<Query>& queries) {
  std::vector<std::int64_t> keys;
  std::vector<bool> asked;  // whether the mask is asked: not in full runs
  layout::for_each_piece(problem.layout->runs(where.b, where.h, where.tile),
                         [&](layout::Range piece, bool full) {
                           for (std::int64_t key = piece.begin; key < piece.end; ++key) {
                             keys.push_back(key);
                             asked.push_back(!full);
                           }
                         });
  const auto count = static_cast<std::int64_t>(keys.size());
  ir::Interpreter<double> mask(problem.mask, problem.mask_memory);
  ir::Interpreter<F> score_mod(problem.score_mod, problem.score_memory);
  const auto poisoned = [](const auto& run, std::size_t n) {
    return !run.poison(0).empty() && run.poison(0)[n] != 0;
  };
  // As mods see them.
  const std::int64_t b = problem.layout->extent().first_b + where.b;
  const std::int64_t h = problem.layout->extent().first_h + where.h;
  for (const Query& query : queries) {
    const std::int64_t q = query.position;
    const auto fail = [&](const auto& run, std::string_view what, std::size_t n) {
      base::fail_mod("{}: {}, at (b {}, h {}, q {}, kv {})", what,
                     run.poison_reason(0, static_cast<std::int64_t>(n)), b, h, q, keys[n]);
    };
    mask({.b = {&b, 1}, .h = {&h, 1}, .q = {&q, 1}, .kv = keys}, count);
    for (std::size_t n = 0; n < keys.size(); ++n)
      if (asked[n] && poisoned(mask, n)) fail(mask, "mask", n);
    std::vector<F> scores;
    for (const std::int64_t key : keys)
      scores.push_back(dot<F>(problem, where.b, where.h, query.row, key));
    score_mod({.score = scores, .b = {&b, 1}, .h = {&h, 1}, .q = {&q, 1}, .kv = keys}, count);
    for (std::size_t n = 0; n < keys.size(); ++n) {
      const bool visible = !asked[n] || mask.booleans(0)[n] != 0;
      if (visible && poisoned(score_mod, n)) fail(score_mod, "score mod", n);
    }
  }
}

}  // namespace

void report(const PoisonProblem& problem, const Poisoned& where) {
  const layout::Tiles& tiles = problem.layout->tiles();
  std::vector<Query> queries;
  for (std::int64_t i = 0; i < tiles.size(where.tile); ++i)
    queries.push_back({tiles.query(where.tile, i), tiles.row(where.tile, i)});
  std::ranges::sort(queries, {}, &Query::position);
  look<double>(problem, where, queries);
  // A score that is rounded elsewhere may be an index that is outside only there.
  if (problem.compute == DType::f32) look<float>(problem, where, queries);
  base::fail_mod(
      "score mod or mask: a read outside of a capture or a division by zero, at b {}, h {} and a "
      "query from {} to {}; which pair it is depends on how a score is rounded, or a capture "
      "changed during the call",
      problem.layout->extent().first_b + where.b, problem.layout->extent().first_h + where.h,
      queries.front().position, queries.back().position);
}

}  // namespace treadle::run
