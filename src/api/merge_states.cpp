// States of rows, merged row by row in f64.
#include "treadle/merge_states.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "api/call.h"
#include "api/check.h"
#include "base/compute_type.h"
#include "base/element.h"
#include "base/error.h"
#include "base/memory_range.h"

namespace treadle {
namespace {

constexpr double nothing = -std::numeric_limits<double>::infinity();

template <class View>
std::int64_t row_offset(const View& view, const std::array<std::int64_t, 3>& row) {
  return row[0] * view.stride(0) + row[1] * view.stride(1) + row[2] * view.stride(2);
}

void check_parts(const std::vector<Saved>& parts) {
  if (parts.empty()) base::fail("merge_states: there are no parts; there must be at least one");
  const Saved& first = parts.front();
  if (first.out.rank() != 4 || !base::holds_gradients(first.out.dtype())) {
    base::fail(
        "merge_states: out is {} {}; it must hold f64, f32, bf16 or f16 and be [batch, heads, "
        "queries, value dim]",
        name_of(first.out.dtype()), to_string(first.out.shape()));
  }
  if (first.lse.dtype() != DType::f32 && first.lse.dtype() != DType::f64)
    base::fail("merge_states: lse holds {}; it must hold f32 or f64", name_of(first.lse.dtype()));
  const Dims& shape = first.out.shape();
  const std::array rows{shape[0], shape[1], shape[2]};
  for (const Saved& part : parts) {
    api::check_tensor("merge_states", "out", part.out, first.out);
    api::check_tensor("merge_states", "lse", part.lse, {first.lse.dtype(), rows});
  }
}

// A result may be a part's memory, which is read row by row before it is written.
void check_apart(std::string_view name, const View& result, const Saved& part) {
  for (const ConstView* input : {&part.out, &part.lse}) {
    const bool same = result.data() == input->data() && result.dtype() == input->dtype() &&
                      result.shape() == input->shape() && result.strides() == input->strides();
    if (!same && base::memory_of(result).overlaps(base::memory_of(*input))) {
      base::fail(
          "merge_states: the result {} overlaps a part; it must be a part's memory or lie apart",
          name);
    }
  }
}

// Rows of all parts, one at a time.
class MergedRow {
 public:
  explicit MergedRow(std::int64_t value_dim) : sum_(static_cast<std::size_t>(value_dim)) {}

  void merge(const std::vector<Saved>& parts, const std::array<std::int64_t, 3>& row) {
    top_ = nothing;
    weight_ = 0;
    std::ranges::fill(sum_, 0);
    for (const Saved& part : parts) top_ = larger(top_, lse_of(part, row));
    if (top_ == nothing) return;
    for (const Saved& part : parts) add(part, row);
  }

  void write(const ForwardViews& results, const std::array<std::int64_t, 3>& row) const {
    const double by = top_ == nothing ? 1 : weight_;
    const View& out = results.out;
    base::visit_dtype(out.dtype(), [&](auto element) {
      using T = typename decltype(element)::type;
      const std::int64_t first = row_offset(out, row);
      for (std::size_t d = 0; d < sum_.size(); ++d)
        base::store_as<T>(out.data(), first + static_cast<std::int64_t>(d) * out.stride(3),
                          sum_[d] / by);
    });
    if (!results.lse) return;
    base::store_double(results.lse->data(), results.lse->dtype(), row_offset(*results.lse, row),
                       top_ == nothing ? nothing : top_ + std::log(weight_));
  }

 private:
  // NaN wins.
  static double larger(double a, double b) { return b > a || std::isnan(b) ? b : a; }
  static double lse_of(const Saved& part, const std::array<std::int64_t, 3>& row) {
    return base::load_double(part.lse.data(), part.lse.dtype(), row_offset(part.lse, row));
  }

  void add(const Saved& part, const std::array<std::int64_t, 3>& row) {
    const double lse = lse_of(part, row);
    if (lse == nothing) return;  // whatever its out holds
    const double weight = lse == top_ ? 1 : std::exp(lse - top_);
    weight_ += weight;
    const ConstView& out = part.out;
    base::visit_dtype(out.dtype(), [&](auto element) {
      using T = typename decltype(element)::type;
      const std::int64_t first = row_offset(out, row);
      for (std::size_t d = 0; d < sum_.size(); ++d) {
        const std::int64_t at = first + static_cast<std::int64_t>(d) * out.stride(3);
        sum_[d] += weight * static_cast<double>(base::load_as<T>(out.data(), at));
      }
    });
  }

  double top_ = nothing, weight_ = 0;
  std::vector<double> sum_;
};

}  // namespace

void merge_states_into(const ForwardViews& results, const std::vector<Saved>& parts,
                       const std::shared_ptr<Executor>& executor) {
  check_parts(parts);
  const Saved& first = parts.front();
  api::check_result("merge_states", "out", results.out, first.out);
  if (results.lse) api::check_result("merge_states", "lse", *results.lse, first.lse);
  if (results.max) base::fail("merge_states: a view for max is given; parts do not have it");
  for (const Saved& part : parts) {
    check_apart("out", results.out, part);
    if (results.lse) check_apart("lse", *results.lse, part);
  }
  const std::int64_t heads = first.out.size(1), queries = first.out.size(2);
  const base::Workers workers = api::workers_of("merge_states", {.executor = executor});
  base::parallel_for(workers, first.out.size(0) * heads, [&](std::int64_t i) {
    MergedRow merged(first.out.size(3));
    for (std::int64_t m = 0; m < queries; ++m) {
      const std::array row{i / heads, i % heads, m};
      merged.merge(parts, row);
      merged.write(results, row);
    }
  });
}

Forward merge_states(const std::vector<Saved>& parts, const std::shared_ptr<Executor>& executor) {
  check_parts(parts);
  Forward merged{Tensor(parts.front().out.dtype(), parts.front().out.shape()),
                 Tensor(parts.front().lse.dtype(), parts.front().lse.shape()), Tensor()};
  merge_states_into({merged.out.view(), merged.lse.view(), std::nullopt}, parts, executor);
  return merged;
}

}  // namespace treadle
