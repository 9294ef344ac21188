#include "emit/llvm/backward.h"

#include <llvm/IR/Module.h>

#include <algorithm>
#include <numbers>

#include "emit/llvm/power.h"
#include "emit/llvm/tile.h"
#include "plan/separable.h"

namespace treadle::emit::llvm {
namespace {

// What a pair gives to a capture, and where: kept for the caller to add in order.
void store_contributions(Builder& build, TileEmitter& tile, const plan::BackwardKernelSpec& spec,
                         const std::vector<ModEmitter::Result>& results, Value* visible, Value* i,
                         int v) {
  Value* amounts = tile.pointer(offsetof(plan::BackwardKernelArgs, contribution_values));
  Value* places = tile.pointer(offsetof(plan::BackwardKernelArgs, contribution_offsets));
  Value* strides = tile.pointer(offsetof(plan::BackwardKernelArgs, gradient_strides));
  Value* apart = tile.word(offsetof(plan::BackwardKernelArgs, contribution_stride));
  ::llvm::VectorType* words = build.vector(build.getInt64Ty());
  const auto output = [&](int n) {
    return build.splat(results[static_cast<std::size_t>(n)].value);
  };
  std::int64_t stride = 0;
  for (std::size_t c = 0; c < spec.derivative.contributions.size(); ++c) {
    const ir::Contribution& contribution = spec.derivative.contributions[c];
    Value* counts = output(contribution.when);
    if (visible != nullptr) counts = build.CreateAnd(counts, visible);
    Value* amount = build.CreateSelect(counts, output(contribution.value), build.numbers(0));
    Value* first = build.CreateMul(apart, build.index(static_cast<std::int64_t>(c)));
    Value* row = build.CreateAdd(build.CreateMul(i, build.index(spec.plan.width())),
                                 build.index(v * build.lanes()));
    Value* at = build.CreateAdd(first, row);
    build.store(amount, build.element(build.real(), amounts, at));

    const auto place = [&] {
      Value* sum = ::llvm::Constant::getNullValue(words);
      for (std::size_t axis = 0; axis < contribution.index.size(); ++axis) {
        const std::int64_t which = stride + static_cast<std::int64_t>(axis);
        Value* step = build.load(build.getInt64Ty(),
                                 build.element(build.getInt64Ty(), strides, build.index(which)));
        Value* wide = build.CreateSExtOrTrunc(output(contribution.index[axis]), words);
        sum = build.CreateAdd(sum, build.CreateMul(wide, build.splat(step)));
      }
      return sum;
    };
    if (!plan::is_separable(spec.derivative.graph, contribution)) {
      build.store(place(), build.element(build.getInt64Ty(), places, at));
    } else {
      build.when(
          build.CreateICmpEQ(i, build.index(0)),
          [&] { build.store(place(), build.element(build.getInt64Ty(), places, at)); }, true);
      if (v == 0) {
        Value* key = build.CreateAdd(build.CreateAdd(first, build.index(spec.plan.width())), i);
        build.store(build.CreateExtractElement(place(), build.index(0)),
                    build.element(build.getInt64Ty(), places, key));
      }
    }
    stride += static_cast<std::int64_t>(contribution.index.size());
  }
}

// For every pair: its weight, and the slope of its score.
void emit_pairs(Builder& build, TileEmitter& tile, const plan::BackwardKernelSpec& spec) {
  const bool modifies = spec.score.kind != plan::ScoreForm::Kind::plain;
  const bool general = spec.score.kind == plan::ScoreForm::Kind::general;
  std::unique_ptr<ModEmitter> score_mod, derivative, mask;
  if (modifies) {
    score_mod = tile.prepare(spec.score.graph, spec.score_facts, spec.plan.compute,
                             offsetof(plan::TileArgs, score_captures));
  }
  if (spec.derives()) {
    derivative = tile.prepare(spec.derivative.graph, spec.derivative_facts, spec.plan.compute,
                              offsetof(plan::BackwardKernelArgs, derivative_captures));
  }
  if (spec.masked)
    mask = tile.prepare(spec.mask, spec.mask_facts, DType::f64,
                        offsetof(plan::TileArgs, mask_captures));
  Value* weights = tile.pointer(offsetof(plan::BackwardKernelArgs, probabilities));
  Value* slopes = tile.pointer(offsetof(plan::BackwardKernelArgs, dscores));
  Values power, delta;
  for (int v = 0; v < spec.plan.vectors; ++v) {
    power.push_back(tile.load(tile.pointer(offsetof(plan::BackwardKernelArgs, lse2)), v));
    delta.push_back(tile.load(tile.pointer(offsetof(plan::BackwardKernelArgs, delta)), v));
  }

  tile.for_keys([&](Value* i, Value* kv) {
    for (ModEmitter* mod : {score_mod.get(), derivative.get(), mask.get()})
      if (mod != nullptr) mod->key(kv, i);
    for (int v = 0; v < spec.plan.vectors; ++v) {
      const auto at = static_cast<std::size_t>(v);
      Value* weight_at = tile.at(weights, i, v);
      Value* slope_at = tile.at(slopes, i, v);
      Value* plain = build.load(build.reals(), weight_at);
      Value* poison = nullptr;
      Value* score = plain;
      if (score_mod) score = tile.modified(*score_mod, spec.score.kind, v, plain, poison);
      Value* weight = power_below(build, build.CreateFSub(score, power[at]), build.numbers(0));
      Value* incoming = build.load(build.reals(), slope_at);
      Value* slope = build.CreateFMul(weight, build.CreateFSub(incoming, delta[at]));
      std::vector<ModEmitter::Result> results;
      if (derivative) {
        // Of a mod that only adds, the scores are in powers of two.
        Value* natural =
            general ? plain : build.CreateFMul(plain, build.numbers(std::numbers::ln2));
        results = derivative->pair(v, natural, slope);
        slope = build.splat(results.front().value);
      }
      Value* visible = nullptr;
      if (mask) {
        const ModEmitter::Result seen = mask->pair(v, nullptr).front();
        visible = build.splat(seen.value);
        weight = build.CreateSelect(visible, weight, build.numbers(0));
        slope = build.CreateSelect(visible, slope, build.numbers(0));
        if (poison != nullptr) poison = build.CreateAnd(poison, visible);
        if (seen.poison != nullptr) {
          Value* unsure = build.splat(seen.poison);
          poison = poison == nullptr ? unsure : build.CreateOr(poison, unsure);
        }
      }
      build.store(weight, weight_at);
      build.store(slope, slope_at);
      if (derivative) store_contributions(build, tile, spec, results, visible, i, v);
      if (poison != nullptr) tile.report(poison);
    }
  });
}

}  // namespace

Module emit_backward(const plan::BackwardKernelSpec& spec) {
  Module made = make_module("backward", spec.plan.target);
  ::llvm::LLVMContext& context = *made.context;
  auto* type = ::llvm::FunctionType::get(::llvm::Type::getVoidTy(context),
                                         {::llvm::PointerType::getUnqual(context)}, false);
  ::llvm::Function* function = make_function(*made.module, "kernel", type, spec.plan.target);
  Builder build(function, spec.plan.target, spec.plan.compute);
  TileEmitter tile(build, spec.plan, function->getArg(0));

  Value* keys = tile.pointer(offsetof(plan::TileArgs, keys));
  Value* slopes = tile.pointer(offsetof(plan::BackwardKernelArgs, dscores));
  tile.multiply(keys, spec.plan.dim, tile.pointer(offsetof(plan::TileArgs, queries)),
                tile.pointer(offsetof(plan::BackwardKernelArgs, probabilities)), {});
  tile.multiply(tile.pointer(offsetof(plan::TileArgs, values)), spec.plan.value_dim,
                tile.pointer(offsetof(plan::BackwardKernelArgs, dout)), slopes, {});
  emit_pairs(build, tile, spec);
  tile.add(keys, spec.plan.dim, slopes, tile.pointer(offsetof(plan::BackwardKernelArgs, dq)),
           false);
  build.CreateRetVoid();
  return made;
}

}  // namespace treadle::emit::llvm
