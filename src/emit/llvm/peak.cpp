#include "emit/llvm/peak.h"

#include <llvm/IR/Module.h>

#include <cstddef>

#include "emit/llvm/builder.h"

namespace treadle::emit::llvm {

Module emit_peak(const plan::PeakSpec& spec) {
  Module made = make_module("peak", spec.target);
  ::llvm::LLVMContext& context = *made.context;
  auto* type = ::llvm::FunctionType::get(::llvm::Type::getVoidTy(context),
                                         {::llvm::PointerType::getUnqual(context)}, false);
  ::llvm::Function* function = make_function(*made.module, "kernel", type, spec.target);
  Builder build(function, spec.target, spec.compute);

  // Twelve chains hide the latency of every machine's multiply-add and leave room for the operands.
  constexpr int chains = 12, unroll = 8;
  const auto field = [&](::llvm::Type* t, std::size_t offset) {
    return build.CreateLoad(t, build.element(build.getInt8Ty(), function->getArg(0),
                                             build.index(static_cast<std::int64_t>(offset))));
  };
  Value* turns = field(build.getInt64Ty(), offsetof(plan::PeakArgs, turns));
  Value* numbers = field(build.getPtrTy(), offsetof(plan::PeakArgs, numbers));
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
                    field(build.getPtrTy(), offsetof(plan::PeakArgs, operations)));
  build.CreateRetVoid();
  return made;
}

}  // namespace treadle::emit::llvm
