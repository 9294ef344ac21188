// Small kernels to compile in tests.
#pragma once

#include <llvm/IR/Module.h>

#include <string>

#include "emit/llvm/builder.h"
#include "emit/llvm/module.h"
#include "jit/engine.h"

namespace treadle::test {

// The function of a module. The engine holds it.
template <class F>
F* function(jit::Engine& engine, const base::Hash& key, const plan::Target& target,
            const jit::Engine::Emit& emit) {
  return reinterpret_cast<F*>(const_cast<void*>(engine.code(key, target, emit).get()));
}

// void kernel(const float* x, float* sum, long n): the sum of n squares, n a multiple of the lanes.
inline emit::llvm::Module squares_module(const plan::Target& target,
                                         const std::string& name = "squares") {
  emit::llvm::Module made = emit::llvm::make_module(name, target);
  llvm::LLVMContext& context = *made.context;
  auto* pointer = llvm::PointerType::get(context, 0);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context),
                                       {pointer, pointer, llvm::Type::getInt64Ty(context)}, false);
  llvm::Function* function = emit::llvm::make_function(*made.module, "kernel", type, target);
  emit::llvm::Builder build(function, target, DType::f32);
  const emit::llvm::Values sums =
      build.loop(build.index(0), function->getArg(2), build.lanes(), {build.numbers(0)},
                 [&](llvm::Value* i, const emit::llvm::Values& carried) -> emit::llvm::Values {
                   llvm::Value* at = build.element(build.real(), function->getArg(0), i);
                   llvm::Value* x = build.load(build.reals(), at);
                   return {build.fma(x, x, carried[0])};
                 });
  build.store(build.CreateFAddReduce(build.number(0), sums[0]), function->getArg(1));
  build.CreateRetVoid();
  return made;
}
using Squares = void(const float*, float*, long);

// void kernel(const float* x, float* y): y = callee(x) for one vector of `lanes` floats.
inline emit::llvm::Module call_module(const plan::Target& target, const std::string& callee,
                                      int lanes) {
  emit::llvm::Module made = emit::llvm::make_module(callee, target);
  llvm::LLVMContext& context = *made.context;
  auto* pointer = llvm::PointerType::get(context, 0);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), {pointer, pointer}, false);
  llvm::Function* function = emit::llvm::make_function(*made.module, "kernel", type, target);
  emit::llvm::Builder build(function, target, DType::f32);
  llvm::Type* real = build.real();
  if (lanes > 1) real = llvm::FixedVectorType::get(real, static_cast<unsigned>(lanes));
  const llvm::FunctionCallee outside =
      made.module->getOrInsertFunction(callee, llvm::FunctionType::get(real, {real}, false));
  build.store(build.CreateCall(outside, {build.load(real, function->getArg(0))}),
              function->getArg(1));
  build.CreateRetVoid();
  return made;
}
using Map = void(const float*, float*);

}  // namespace treadle::test
