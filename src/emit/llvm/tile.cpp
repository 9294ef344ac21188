// The parts of tile kernels that forward and backward have in common.
//
// In: a plan and the address of the arguments. Out: instructions. Read prepare() first: it feeds a
// mod with the tile's head, queries and keys.
#include "emit/llvm/tile.h"

#include <numbers>
#include <utility>

namespace treadle::emit::llvm {

using plan::TileArgs;

TileEmitter::TileEmitter(Builder& build, const plan::TilePlan& plan, Value* args)
    : build_(build), plan_(plan), args_(build, args), count_(args_[&TileArgs::count]) {}

std::unique_ptr<ModEmitter> TileEmitter::prepare(plan::ModPlan mod_plan, DType real,
                                                 Value* captures) {
  const plan::ModScratch scratch = plan::scratch_of(mod_plan, build_.lanes());
  Value* frame = nullptr;
  if (scratch.frame > 0) {
    frame =
        build_.element(build_.getInt8Ty(), args_[&TileArgs::frame], build_.index(scratch_.frame));
  }
  auto mod = std::make_unique<ModEmitter>(
      build_, std::move(mod_plan),
      ModOptions{.real = real, .captures = captures, .vectors = plan_.vectors, .frame = frame});
  const auto narrow = [&](std::int64_t TileArgs::* member) {
    return build_.CreateTrunc(args_[member], build_.getInt32Ty());
  };
  mod->head(narrow(&TileArgs::b), narrow(&TileArgs::h));
  Values q, active;
  ::llvm::VectorType* integers = build_.vector(build_.getInt32Ty());
  Value* positions = args_[&TileArgs::positions];
  for (int v = 0; v < plan_.vectors; ++v) {
    Value* first = build_.index(v * build_.lanes());
    q.push_back(build_.load(integers, build_.element(build_.getInt32Ty(), positions, first)));
    std::vector<::llvm::Constant*> lane;
    for (int i = 0; i < build_.lanes(); ++i)
      lane.push_back(build_.getInt32(static_cast<std::uint32_t>(v * build_.lanes() + i)));
    active.push_back(build_.CreateICmpSLT(::llvm::ConstantVector::get(lane),
                                          build_.splat(narrow(&TileArgs::active))));
  }
  mod->queries(q, active);
  if (scratch.staged > 0) {
    Value* staged = build_.element(build_.getInt8Ty(), args_[&TileArgs::staged],
                                   build_.index(scratch_.staged * plan_.key_block * plan_.width()));
    mod->stage(args_[&TileArgs::key_positions], count_, plan_.key_block, staged);
  }
  scratch_ += scratch;
  return mod;
}

void TileEmitter::for_keys(const std::function<void(Value*, Value*)>& body) {
  build_.loop(build_.index(0), count_, 1, [&](Value* i) { body(i, position_of(i)); });
}

Value* TileEmitter::visible_poison(Value* of_score, Value* visible, Value* of_mask) {
  Value* poison = of_score == nullptr ? nullptr : build_.CreateAnd(of_score, visible);
  if (of_mask == nullptr) return poison;
  Value* unknown = build_.splat(of_mask);
  return poison == nullptr ? unknown : build_.CreateOr(poison, unknown);
}

void TileEmitter::report(Value* poison) {
  build_.when(
      build_.any(poison),
      [&] { build_.CreateStore(build_.getInt64(1), args_[&TileArgs::poisoned]); }, true);
}

Value* modified_score(Builder& build, ModEmitter& mod, plan::ScoreForm::Kind kind, int v,
                      Value* score, Value*& poison) {
  Value* log2e = build.number(std::numbers::log2e);
  const bool added = kind == plan::ScoreForm::Kind::added;
  const ModEmitter::Result result = mod.pair(v, added ? nullptr : score).front();
  if (result.poison != nullptr) poison = build.splat(result.poison);
  // The same steps for a scalar: which values are scalars follows from what is in the lanes.
  Value* value = build.splat(result.value);
  return added ? build.fma(value, build.splat(log2e), score)
               : build.CreateFMul(value, build.splat(log2e));
}

}  // namespace treadle::emit::llvm
