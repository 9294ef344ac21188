// Register blocking of the sums over queries, and the name of such a kernel.
#include "plan/reduce_kernel.h"

namespace treadle::plan {

int ReduceSpec::vectors() const {
  const std::int64_t whole = length / target.lanes(compute);
  if (target.registers >= 32 && whole % 4 == 0) return 4;
  if (whole % 2 == 0) return 2;
  if (whole % 3 == 0) return 3;
  return whole == 1 ? 1 : 2;
}

int ReduceSpec::rows_at_once() const {
  const int accumulators = !target.fma ? 8 : target.registers >= 32 ? 24 : 12;
  return vectors() == 1 ? accumulators * 2 / 3 : accumulators / vectors();
}

std::int64_t padded(const TilePlan& plan, std::int64_t length) {
  const std::int64_t lanes = plan.target.lanes(plan.compute);
  return (length + lanes - 1) / lanes * lanes;
}

std::int64_t block_rows(const TilePlan& plan) {
  constexpr std::int64_t most_at_once = 24;  // rows_at_once() of any spec is at most this
  return plan.key_block + most_at_once;
}

ReduceSpec plan_reduce(const TilePlan& plan, std::int64_t length) {
  return {.target = plan.target,
          .compute = plan.compute,
          .width = plan.width(),
          .a_rows = block_rows(plan),
          .length = padded(plan, length)};
}

base::Key key(const ReduceSpec& spec) {
  const auto& [target, compute, width, a_rows, length, skip_hidden] = spec;
  return base::Hasher()
      .add("reduce")
      .add(hash(target))
      .add(compute)
      .add(width)
      .add(a_rows)
      .add(length)
      .add(skip_hidden)
      .key();
}

}  // namespace treadle::plan
