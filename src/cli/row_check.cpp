#include "cli/row_check.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "base/element.h"
#include "ir/interpret.h"
#include "trace/trace.h"

namespace treadle::cli {
namespace {

double element(const ConstView& view, std::int64_t b, std::int64_t h, std::int64_t i,
               std::int64_t d) {
  const std::int64_t offset =
      b * view.stride(0) + h * view.stride(1) + i * view.stride(2) + d * view.stride(3);
  double value = 0;
  base::visit_dtype(view.dtype(), [&](auto tag) {
    value = static_cast<double>(base::load_as<typename decltype(tag)::type>(view.data(), offset));
  });
  return value;
}

ir::Interpreter<double> interpreter(const auto& mod) {
  auto table = std::make_shared<trace::CaptureTable>();
  const ir::Graph graph = trace::trace(mod, table);
  std::vector<ConstView> memory;
  for (const ir::Slot& slot : graph.slots())
    memory.push_back(std::ranges::find(table->captures(), slot.name, &Capture::name)->view());
  return {graph, memory};
}

}  // namespace

double row_error(const Options& options, const Inputs& inputs, const ConstView& out) {
  const std::int64_t heads = inputs.q.size(1), queries = inputs.q.size(2), keys = inputs.k.size(2);
  const std::int64_t dim = inputs.q.size(3), value_dim = inputs.v.size(3);
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(dim)));
  ir::Interpreter<double> score_mod = interpreter(options.score_mod);
  ir::Interpreter<double> mask = interpreter(options.mask);
  std::vector<std::int64_t> kv(static_cast<std::size_t>(keys));
  std::iota(kv.begin(), kv.end(), 0);
  std::vector<double> scores(kv.size());
  const std::int64_t b = 0;
  double worst = 0;
  for (int i = 0; i < 6; ++i) {
    const std::int64_t h = i % heads;
    const std::int64_t q = i == 0 ? 0 : (queries - 1) * i / 5;
    const std::int64_t key_head = h / (heads / inputs.k.size(1));
    for (std::int64_t n = 0; n < keys; ++n) {
      double dot = 0;
      for (std::int64_t d = 0; d < dim; ++d)
        dot += element(inputs.q, b, h, q, d) * element(inputs.k, b, key_head, n, d);
      scores[static_cast<std::size_t>(n)] = dot * scale;
    }
    mask({.b = {&b, 1}, .h = {&h, 1}, .q = {&q, 1}, .kv = kv}, keys);
    score_mod({.score = scores, .b = {&b, 1}, .h = {&h, 1}, .q = {&q, 1}, .kv = kv}, keys);
    const auto seen = mask.booleans(0);
    const auto modified = score_mod.reals(0);
    double largest = -INFINITY;
    for (std::size_t n = 0; n < kv.size(); ++n)
      if (seen[n] != 0) largest = std::max(largest, modified[n]);
    std::vector<double> row(static_cast<std::size_t>(value_dim));
    double sum = 0;
    for (std::size_t n = 0; n < kv.size(); ++n) {
      if (seen[n] == 0) continue;
      const double weight = std::exp(modified[n] - largest);
      sum += weight;
      for (std::int64_t d = 0; d < value_dim; ++d)
        row[static_cast<std::size_t>(d)] += weight * element(inputs.v, b, key_head, kv[n], d);
    }
    for (std::int64_t d = 0; d < value_dim; ++d) {
      const double expected = sum == 0 ? 0 : row[static_cast<std::size_t>(d)] / sum;
      worst = std::max(worst, std::abs(element(out, b, h, q, d) - expected));
    }
  }
  return worst;
}

}  // namespace treadle::cli
