// The merging kernel: vector by vector of queries.
//
// In: a spec. Out: a module whose function `kernel` merges a part into a state:
//
//   m' = max(m, m2)                        NaN where one of them is; of two zeros m
//   l' = l * 2^(ceil m - ceil m') + l2 * 2^(ceil m2 - ceil m')
//   O' = O * 2^(ceil m - ceil m') + O2 * 2^(ceil m2 - ceil m')
//
// with 0 for the power of a side that saw nothing. Products and sums round one by one, as in
// merge() of run/tile.h: there are no fused ones, so both sides are alike.
#include "emit/llvm/merge.h"

#include <limits>
#include <utility>

#include "emit/llvm/exp2.h"
#include "emit/llvm/kernel_function.h"
#include "emit/llvm/scale.h"

namespace treadle::emit::llvm {
namespace {

using plan::MergeArgs;

class MergeEmitter {
 public:
  explicit MergeEmitter(const plan::MergeSpec& spec)
      : spec_(spec), kernel_("merge", spec.target, spec.compute), build_(kernel_.build()) {}

  Module emit() && {
    build_.loop(build_.index(0), build_.index(spec_.width), build_.lanes(),
                [&](Value* q) { merge(q); });
    return std::move(kernel_).finish();
  }

 private:
  Value* vector(Value* array, Value* at) {
    return build_.load(build_.reals(), build_.element(build_.real(), array, at));
  }

  // 2^(ceil m - ceil now), for a side whose maximum is m.
  Value* factor(Value* m, Value* now) {
    const double lowest = (spec_.compute == DType::f64 ? std::numeric_limits<double>::min_exponent
                                                       : std::numeric_limits<float>::min_exponent) -
                          1;
    Value* n = build_.CreateFSub(round_up(build_, m), round_up(build_, now));
    Value* power = scale_down(build_, build_.numbers(1), n);
    power = build_.CreateSelect(build_.CreateFCmpOLT(n, build_.numbers(lowest)), build_.numbers(0),
                                power);
    power = build_.CreateSelect(build_.CreateFCmpUNO(n, n), n, power);
    Value* nothing =
        build_.CreateFCmpOEQ(m, build_.numbers(-std::numeric_limits<double>::infinity()));
    return build_.CreateSelect(nothing, build_.numbers(0), power);
  }

  // The queries of one vector, from lane q on.
  void merge(Value* q) {
    const auto& args = kernel_.args();
    Value* maximum = args[&MergeArgs::maximum];
    Value* old = vector(maximum, q);
    Value* other = vector(args[&MergeArgs::part_maximum], q);
    Value* now = build_.CreateSelect(build_.CreateFCmpUNO(old, other),
                                     build_.numbers(std::numeric_limits<double>::quiet_NaN()),
                                     build_.larger(other, old));
    Value* keep = factor(old, now);
    Value* add = factor(other, now);
    build_.store(now, build_.element(build_.real(), maximum, q));
    const auto join = [&](Value* to, Value* from, Value* at) {
      Value* sum = build_.CreateFAdd(build_.CreateFMul(vector(to, at), keep),
                                     build_.CreateFMul(vector(from, at), add));
      build_.store(sum, build_.element(build_.real(), to, at));
    };
    join(args[&MergeArgs::weight], args[&MergeArgs::part_weight], q);
    Value* sums = args[&MergeArgs::sums];
    Value* part = args[&MergeArgs::part_sums];
    build_.loop(build_.index(0), build_.index(spec_.value_dim), 1, [&](Value* d) {
      Value* row = build_.CreateNSWMul(d, build_.index(spec_.width));
      join(sums, part, build_.CreateNSWAdd(row, q));
    });
  }

  const plan::MergeSpec& spec_;
  KernelFunction<MergeArgs> kernel_;
  Builder& build_;
};

}  // namespace

Module emit_merge(const plan::MergeSpec& spec) { return MergeEmitter(spec).emit(); }

}  // namespace treadle::emit::llvm
