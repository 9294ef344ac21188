// What kernels for a tile of queries and a block of keys share: their arguments, the two products,
// and mods made ready.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "emit/llvm/builder.h"
#include "emit/llvm/mod.h"
#include "plan/score_form.h"
#include "plan/tile_args.h"
#include "plan/tile_plan.h"

namespace treadle::emit::llvm {

class TileEmitter {
 public:
  // args: the address of a struct that begins with plan::TileArgs.
  TileEmitter(Builder& build, const plan::TilePlan& plan, Value* args);

  // A member of the arguments, by its offset.
  Value* word(std::size_t offset) { return build_.CreateLoad(build_.getInt64Ty(), field(offset)); }
  Value* pointer(std::size_t offset) { return build_.CreateLoad(build_.getPtrTy(), field(offset)); }
  [[nodiscard]] Value* count() const { return count_; }

  // Vector v of row `row` of an array of rows of the tile's width.
  Value* at(Value* array, Value* row, int v);
  Value* load(Value* array, int v) {
    return build_.load(build_.reals(), at(array, build_.index(0), v));
  }
  void store(Value* value, Value* array, int v) {
    build_.store(value, at(array, build_.index(0), v));
  }

  // to[k][q] = sum_d a[k][d] * b[d][q] for all keys; `each` sees every vector, some of them twice.
  using Each = std::function<void(Value* product, int v)>;
  void multiply(Value* a, std::int64_t dim, Value* b, Value* to, const Each& each);

  // sums[d][q] += sum_k a[k][d] * weights[k][q]. With skip_hidden weights of -0 add nothing, not
  // even 0 * inf.
  void add(Value* a, std::int64_t dim, Value* weights, Value* sums, bool skip_hidden);

  // The part of a mod that is computed once per call; `captures` is the offset of their descriptors.
  std::unique_ptr<ModEmitter> prepare(const ir::Graph& graph, const plan::ModFacts& facts,
                                      DType real, std::size_t captures);

  // log2(e) times what a score mod makes of a score; poison is set where there may be some.
  Value* modified(ModEmitter& mod, plan::ScoreForm::Kind kind, int v, Value* score, Value*& poison);

  // body(i, which key) for all keys.
  void for_keys(const std::function<void(Value* i, Value* kv)>& body);

  // Tells the caller, if a lane is set.
  void report(Value* poison);
  Value* any(Value* truth);

 private:
  Value* field(std::size_t offset) {
    return build_.element(build_.getInt8Ty(), args_,
                          build_.index(static_cast<std::int64_t>(offset)));
  }
  void multiply_rows(Value* a, std::int64_t dim, Value* b, Value* to, Value* first, int rows,
                     const Each& each);

  Builder& build_;
  const plan::TilePlan& plan_;
  Value* args_;
  Value* count_;
};

}  // namespace treadle::emit::llvm
