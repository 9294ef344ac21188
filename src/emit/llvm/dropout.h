// Which pairs keep their weights, in the lanes of kernels: base::DropoutRule, with the same bits.
//
//   TileDropout dropout(build, plan, tile.args());    // where the kernel begins: it takes stack
//   dropout.begin();                                  // before a loop over keys
//   dropout.key(kv);                                  // keys ascend
//   weight = dropout.kept(weight, v);                 // against vector v of the queries
//
// The bits of eight neighbouring keys come from one call of Philox, so they are made for all eight when
// the first of them turns up.
#pragma once

#include <array>

#include "emit/llvm/kernel_function.h"
#include "plan/dropout_args.h"
#include "plan/tile_args.h"
#include "plan/tile_plan.h"

namespace treadle::emit::llvm {

// What calls of Philox have in common.
class DropoutBits {
 public:
  explicit DropoutBits(Builder& build) : build_(build) {}

  // `args`: the address of a plan::DropoutArgs.
  void begin(Value* args);
  // In all lanes: as a number of the arithmetic.
  [[nodiscard]] Value* scale() const { return scale_; }

  // Words of the counter, i32 or vectors of them: four vectors of i32.
  using Words = std::array<Value*, 4>;
  Words words(const Words& counter);
  // The upper 16 bits of vectors of i32 decide: all ones where the pair is kept, else zero, as wide as
  // the arithmetic's numbers.
  Value* mask(Value* bits);
  // Numbers where the mask is ones, else 0.
  Value* masked(Value* numbers, Value* mask);
  [[nodiscard]] ::llvm::VectorType* masks() {
    return build_.vector(build_.getIntNTy(build_.real()->getScalarSizeInBits()));
  }

 private:
  Value* product(Value* x, std::uint32_t factor);
  Value* high(Value* x);
  Value* mix(Value* a, Value* b);

  Builder& build_;
  std::array<Value*, 2> key_{};  // i64
  Value *threshold_ = nullptr, *scale_ = nullptr;
};

// With queries in the lanes.
class TileDropout {
 public:
  TileDropout(Builder& build, const plan::TilePlan& plan, const Arguments<plan::TileArgs>& args);

  void begin();
  void key(Value* kv);
  // 0 where the pair of the last key is dropped.
  Value* kept(Value* numbers, int v);
  // What such a pair's weight is multiplied with.
  Value* factor(int v) { return kept(bits_.scale(), v); }

 private:
  Value* masks_at(Value* place, Value* v);

  Builder& build_;
  const plan::TilePlan& plan_;
  const Arguments<plan::TileArgs>& args_;
  DropoutBits bits_;
  Value* masks_;  // address: those of eight keys, [8][width]
  Value* group_;  // address of an i32: the number of these eight keys
  Value *b_ = nullptr, *h_ = nullptr, *place_ = nullptr;
};

// With keys in the lanes: `numbers` where the pairs of b, h and q (i32) with kv (a vector of i32) are
// kept, else 0.
Value* kept_keys(Builder& build, DropoutBits& bits, Value* numbers,
                 const std::array<Value*, 3>& bhq, Value* kv);

}  // namespace treadle::emit::llvm
