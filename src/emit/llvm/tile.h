// What kernels for a tile of queries and a block of keys share: rows of the tile, mods, poison.
#pragma once

#include <functional>
#include <memory>

#include "emit/llvm/kernel_function.h"
#include "emit/llvm/mod.h"
#include "plan/score_form.h"
#include "plan/tile_args.h"
#include "plan/tile_plan.h"

namespace treadle::emit::llvm {

class TileEmitter {
 public:
  // args: the address of a struct that begins with plan::TileArgs.
  TileEmitter(Builder& build, const plan::TilePlan& plan, Value* args);

  [[nodiscard]] const Arguments<plan::TileArgs>& args() const { return args_; }
  [[nodiscard]] Value* count() const { return count_; }  // of keys

  // The address of vector v of row `row`, in an array of rows of the tile's width.
  Value* at(Value* array, Value* row, int v) {
    return build_.vector_at(array, row, plan_.width(), v);
  }
  // Vector v of an array that is one such row.
  Value* load(Value* array, int v) {
    return build_.load(build_.reals(), at(array, build_.index(0), v));
  }
  void store(Value* value, Value* array, int v) {
    build_.store(value, at(array, build_.index(0), v));
  }

  // The part of a mod that is computed once per call. `captures` is the address of its captures'
  // descriptors.
  std::unique_ptr<ModEmitter> prepare(plan::ModPlan mod_plan, DType real, Value* captures);
  std::unique_ptr<ModEmitter> prepare(const ir::Graph& mod, const plan::ModFacts& facts, DType real,
                                      Value* captures) {
    return prepare(plan::plan_mod(mod, facts, {}, plan_.mods), real, captures);
  }

  // kv of key i.
  Value* position_of(Value* i) {
    ::llvm::Type* int32 = build_.getInt32Ty();
    Value* positions = args_[&plan::TileArgs::key_positions];
    return build_.CreateLoad(int32, build_.element(int32, positions, i));
  }
  // body(i, kv) for all keys: i counts them, kv is the position.
  void for_keys(const std::function<void(Value* i, Value* kv)>& body);

  // Poison that counts: that of a visible score, and that of the visibility itself. Null: none.
  Value* visible_poison(Value* of_score, Value* visible, Value* of_mask);
  // Sets TileArgs::poisoned if any lane is true.
  void report(Value* poison);

 private:
  Builder& build_;
  const plan::TilePlan& plan_;
  Arguments<plan::TileArgs> args_;
  Value* count_;
  plan::ModScratch scratch_;  // of the mods prepared so far
};

// log2(e) * mod(score) of vector v; sets `poison` where the result may be poison.
Value* modified_score(Builder& build, ModEmitter& mod, plan::ScoreForm::Kind kind, int v,
                      Value* score, Value*& poison);

}  // namespace treadle::emit::llvm
