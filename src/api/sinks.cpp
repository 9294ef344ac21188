// Sinks as numbers, and their gradients from rows of results.
#include "api/sinks.h"

#include <array>
#include <cmath>
#include <limits>

#include "api/check.h"
#include "base/compute_type.h"
#include "base/element.h"
#include "base/error.h"

namespace treadle::api {
namespace {

// <a, b> of row m of a head; the two are of one type.
double dot(const ConstView& a, const ConstView& b, std::int64_t batch, std::int64_t head,
           std::int64_t m) {
  const auto offset = [&](const ConstView& view) {
    return batch * view.stride(0) + head * view.stride(1) + m * view.stride(2);
  };
  const std::int64_t a_first = offset(a), b_first = offset(b);
  return base::visit_dtype(a.dtype(), [&](auto element) {
    using T = typename decltype(element)::type;
    double sum = 0;
    for (std::int64_t d = 0; d < a.size(3); ++d) {
      sum += static_cast<double>(base::load_as<T>(a.data(), a_first + d * a.stride(3))) *
             static_cast<double>(base::load_as<T>(b.data(), b_first + d * b.stride(3)));
    }
    return sum;
  });
}

double number_at(const ConstView& rows, std::int64_t b, std::int64_t h, std::int64_t m) {
  return base::load_double(rows.data(), rows.dtype(),
                           b * rows.stride(0) + h * rows.stride(1) + m * rows.stride(2));
}

// value(begin) + ... + value(end - 1), halves of halves.
template <class Value>
double tree_sum(std::int64_t begin, std::int64_t end, const Value& value) {
  if (end - begin == 1) return value(begin);
  const std::int64_t middle = begin + (end - begin) / 2;
  return tree_sum(begin, middle, value) + tree_sum(middle, end, value);
}

// What row m of a head gives to its sink's gradient.
double given_by(double sink, const SinkRows& rows, std::int64_t b, std::int64_t h, std::int64_t m) {
  const double delta = dot(rows.saved.out, rows.dout, b, h, m);
  const double dlse = rows.dlse ? number_at(*rows.dlse, b, h, m) : 0;
  return std::exp(sink - number_at(rows.saved.lse, b, h, m)) * (dlse - delta);
}

template <class Value>
void add_nodes(layout::Range node, layout::Range here, const Value& value,
               std::vector<double>& nodes) {
  if (node.end <= here.begin || here.end <= node.begin || here.empty()) return;
  if (here.begin <= node.begin && node.end <= here.end) {
    nodes.push_back(tree_sum(node.begin, node.end, value));
    return;
  }
  const std::int64_t middle = node.begin + node.count() / 2;
  add_nodes({node.begin, middle}, here, value, nodes);
  add_nodes({middle, node.end}, here, value, nodes);
}

double join_nodes(layout::Range node, std::span<const layout::Range> owners,
                  std::span<std::span<const double>> nodes) {
  for (std::size_t i = 0; i < owners.size(); ++i) {
    if (owners[i].begin > node.begin || node.end > owners[i].end) continue;
    const double sum = nodes[i].front();
    nodes[i] = nodes[i].subspan(1);
    return sum;
  }
  const std::int64_t middle = node.begin + node.count() / 2;
  const double first = join_nodes({node.begin, middle}, owners, nodes);
  return first + join_nodes({middle, node.end}, owners, nodes);
}

}  // namespace

std::vector<double> sinks_of(std::string_view call, const std::optional<ConstView>& given,
                             const backend::Sizes& sizes) {
  std::vector<double> sinks;
  find_sinks(call, given, sizes, sinks);
  return sinks;
}

void find_sinks(std::string_view call, const std::optional<ConstView>& given,
                const backend::Sizes& sizes, std::vector<double>& sinks) {
  sinks.clear();
  if (!given) return;
  if (!base::holds_gradients(given->dtype())) {
    base::fail("{}: sinks are of type {}; they must be f64, f32, bf16 or f16", call,
               name_of(given->dtype()));
  }
  check_tensor(call, "sinks", *given, {given->dtype(), std::array{sizes.heads}});
  for (std::int64_t h = 0; h < sizes.heads; ++h)
    sinks.push_back(base::load_double(given->data(), given->dtype(), h * given->stride(0)));
}

std::vector<double> sink_gradients(const std::vector<double>& sinks, const backend::Sizes& sizes,
                                   const SinkRows& rows, const base::Workers& workers) {
  std::vector<double> sums(static_cast<std::size_t>(sizes.batch * sizes.heads));
  base::parallel_for(workers, sizes.batch * sizes.heads, [&](std::int64_t i) {
    const std::int64_t b = i / sizes.heads, h = i % sizes.heads;
    const double sink = sinks[static_cast<std::size_t>(h)];
    if (sizes.queries.empty() || sink == -std::numeric_limits<double>::infinity()) return;
    sums[static_cast<std::size_t>(i)] = tree_sum(
        0, sizes.queries.count(), [&](std::int64_t m) { return given_by(sink, rows, b, h, m); });
  });
  std::vector<double> gradients(sinks.size());
  for (std::size_t i = 0; i < sums.size(); ++i) gradients[i % sinks.size()] += sums[i];
  return gradients;
}

void add_sink_nodes(double sink, const SinkRows& rows, std::int64_t b, std::int64_t h,
                    layout::Range here, std::int64_t all, std::vector<double>& nodes) {
  add_nodes(
      {0, all}, here, [&](std::int64_t m) { return given_by(sink, rows, b, h, m - here.begin); },
      nodes);
}

double join_sink_nodes(std::span<const layout::Range> owners,
                       std::span<std::span<const double>> nodes, std::int64_t all) {
  return join_nodes({0, all}, owners, nodes);
}

void store_dsinks(const View& to, const std::vector<double>& dsinks) {
  base::visit_dtype(to.dtype(), [&](auto element) {
    using T = typename decltype(element)::type;
    for (std::size_t h = 0; h < dsinks.size(); ++h)
      base::store_as<T>(to.data(), static_cast<std::int64_t>(h) * to.stride(0), dsinks[h]);
  });
}

}  // namespace treadle::api
