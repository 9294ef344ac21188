// The loop that speed is measured by: chains of multiply-adds between registers.
//
// In: a spec. Out: a module whose function `kernel` runs the loop and says how much it computed.
#include "emit/llvm/peak.h"

#include <utility>

#include "emit/llvm/kernel_function.h"

namespace treadle::emit::llvm {

using plan::PeakArgs;

Module emit_peak(const plan::PeakSpec& spec) {
  KernelFunction<PeakArgs> kernel("peak", spec.target, spec.compute);
  Builder& build = kernel.build();

  // Twelve chains hide the latency of every machine's multiply-add and leave room for the operands.
  constexpr int chains = 12, unroll = 8;
  Value* turns = kernel.args()[&PeakArgs::turns];
  Value* numbers = kernel.args()[&PeakArgs::numbers];
  const auto number = [&](int i) { return build.element(build.real(), numbers, build.index(i)); };
  Value* factor = build.splat(build.load(build.real(), number(0)));
  Value* summand = build.splat(build.load(build.real(), number(1)));
  Values sums;
  // Different starts, none of them a fixed point: equal chains would be computed once.
  for (int i = 0; i < chains; ++i) sums.push_back(build.numbers(i + 2.5));
  sums = build.loop(build.index(0), turns, 1, sums, [&](Value*, Values now) {
    for (int u = 0; u < unroll; ++u)
      for (Value*& sum : now) sum = build.fma(sum, factor, summand);
    return now;
  });
  Value* all = sums.front();
  for (int i = 1; i < chains; ++i) all = build.CreateFAdd(all, sums[static_cast<std::size_t>(i)]);
  build.store(build.CreateExtractElement(all, std::uint64_t{0}), number(2));
  build.CreateStore(build.CreateMul(turns, build.index(2 * chains * unroll * build.lanes())),
                    kernel.args()[&PeakArgs::operations]);
  return std::move(kernel).finish();
}

}  // namespace treadle::emit::llvm
