#include "emit/llvm/backward.h"

#include <llvm/IR/Module.h>

#include "emit/llvm/power.h"
#include "emit/llvm/tile.h"

namespace treadle::emit {
namespace {

// For every pair: its weight, and the slope of its score.
void emit_pairs(Builder& build, TileEmitter& tile, const SlopeSpec& spec) {
  const bool modifies = spec.score.kind != plan::ScoreForm::Kind::plain;
  const bool derives = spec.score.kind == plan::ScoreForm::Kind::general;
  std::unique_ptr<ModEmitter> score_mod, derivative, mask;
  if (modifies) {
    score_mod = tile.prepare(spec.score.graph, spec.score_facts, spec.plan.compute,
                             offsetof(TileArgs, score_words));
  }
  if (derives) {
    derivative = tile.prepare(spec.derivative, spec.derivative_facts, spec.plan.compute,
                              offsetof(SlopeArgs, derivative_words));
  }
  if (spec.masked)
    mask = tile.prepare(spec.mask, spec.mask_facts, DType::f64, offsetof(TileArgs, mask_words));
  Value* weights = tile.pointer(offsetof(SlopeArgs, weights));
  Value* slopes = tile.pointer(offsetof(SlopeArgs, slopes));
  Values power, delta;
  for (int v = 0; v < spec.plan.vectors; ++v) {
    power.push_back(tile.load(tile.pointer(offsetof(SlopeArgs, power)), v));
    delta.push_back(tile.load(tile.pointer(offsetof(SlopeArgs, delta)), v));
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
      if (derivative) slope = build.splat(derivative->pair(v, plain, slope).front().value);
      if (mask) {
        const ModEmitter::Result seen = mask->pair(v, nullptr).front();
        Value* visible = build.splat(seen.value);
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
      if (poison != nullptr) tile.report(poison);
    }
  });
}

}  // namespace

base::Hash key(const SlopeSpec& spec) {
  base::Hasher hasher;
  hasher.add("backward slopes").add(hash(spec.plan)).add(spec.score.kind).add(spec.masked);
  if (spec.score.kind != plan::ScoreForm::Kind::plain)
    hasher.add(spec.score.graph.hash()).add(hash(spec.score_facts));
  if (spec.score.kind == plan::ScoreForm::Kind::general)
    hasher.add(spec.derivative.hash()).add(hash(spec.derivative_facts));
  if (spec.masked) hasher.add(spec.mask.hash()).add(hash(spec.mask_facts));
  return hasher.finish();
}

Module emit_slopes(const SlopeSpec& spec) {
  Module made = make_module("backward", spec.plan.target);
  llvm::LLVMContext& context = *made.context;
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context),
                                       {llvm::PointerType::getUnqual(context)}, false);
  llvm::Function* function = make_function(*made.module, "kernel", type, spec.plan.target);
  Builder build(function, spec.plan.target, spec.plan.compute);
  TileEmitter tile(build, spec.plan, function->getArg(0));

  Value* keys = tile.pointer(offsetof(TileArgs, keys));
  Value* slopes = tile.pointer(offsetof(SlopeArgs, slopes));
  tile.multiply(keys, spec.plan.dim, tile.pointer(offsetof(TileArgs, queries)),
                tile.pointer(offsetof(SlopeArgs, weights)), {});
  tile.multiply(tile.pointer(offsetof(TileArgs, values)), spec.plan.value_dim,
                tile.pointer(offsetof(SlopeArgs, gradients)), slopes, {});
  emit_pairs(build, tile, spec);
  tile.add(keys, spec.plan.dim, slopes, tile.pointer(offsetof(SlopeArgs, dq)), false);
  build.CreateRetVoid();
  return made;
}

}  // namespace treadle::emit
