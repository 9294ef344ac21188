// The backward kernel: P and dS of one tile of queries and one block of keys, and its part of dQ.
//
// In: a spec. Out: a module whose function `kernel` does this. Read BackwardEmitter::emit() first:
// it lists the steps.
//
// With K, V the block's keys and values, Q the tile's queries (multiplied with the scale), dO the
// gradient of its outputs, and lse and delta of its queries:
//
//   s   = K Q^T                                        multiply_queries
//   dP  = V dO^T                                       multiply_dout
//   s'  = log2(e) * mod(s)                             differentiate
//   P   = 2^(s' - log2(e) * lse), 0 where hidden       differentiate  (-0 if exact_nonfinite)
//   P, dP times f, if there is dropout                 differentiate
//   dS  = P * (dP - delta), then through mod':         differentiate
//         dscore = mod'(s) dS; contributions to captures' gradients
//   dQ += K^T dS, still without the scale              add_keys
//
// f is 0 for pairs that are dropped and 1 / (1 - p) for others; dS has the P without it.
// Where the keys are those of whole chunks, K^T dS is one after the other that of each chunk.
// delta = rowsum(dO * O) - dlse comes from outside, and dV += P dO, dK += dS Q are made of P and dS
// afterwards (plan/reduce_kernel.h). Names: `probabilities` is s and then P, `dscores` is dP and
// then dS, `lse2` is log2(e) * lse. All are transposed: rows of keys or dims, queries in the lanes.
#include "emit/llvm/backward.h"

#include <functional>
#include <memory>
#include <numbers>
#include <optional>
#include <utility>

#include "emit/llvm/dropout.h"
#include "emit/llvm/exp2.h"
#include "emit/llvm/fetch.h"
#include "emit/llvm/kernel_function.h"
#include "emit/llvm/products.h"
#include "emit/llvm/tile.h"
#include "plan/mod_plan.h"

namespace treadle::emit::llvm {
namespace {

using plan::BackwardKernelArgs;
using plan::TileArgs;

class BackwardEmitter {
 public:
  explicit BackwardEmitter(const plan::BackwardKernelSpec& spec);

  Module emit() &&;

 private:
  using Outputs = std::vector<ModEmitter::Result>;

  // Key i (an i64) against vector v of the queries.
  struct Pair {
    Value* i = nullptr;
    int v = 0;
  };
  struct Mods {
    std::unique_ptr<ModEmitter> score, derivative, mask;
  };
  struct Rows {
    Value *probabilities = nullptr, *dscores = nullptr;  // addresses
    Values lse2, delta, takes_part;                      // by vector; the last if exact_nonfinite
  };

  void multiply_queries();
  void multiply_dout();
  void differentiate();
  void add_keys();

  // What products do besides multiplying.
  std::function<void()> meanwhile() {
    if (!fetcher_) return {};
    return [this] { fetcher_->fetch(); };
  }
  Mods prepare_mods();
  Rows load_rows();
  void differentiate_pair(const Mods& mods, const Rows& rows, const Pair& pair);
  void store_contributions(const Outputs& outputs, Value* visible, const Pair& pair);
  Value* gradient_offset(const Outputs& outputs, const ir::Contribution& contribution,
                         Value* strides, std::int64_t first_stride);
  Value* output(const Outputs& outputs, int number) {
    return build_.splat(outputs[static_cast<std::size_t>(number)].value);
  }

  const plan::BackwardKernelSpec& spec_;
  const plan::TilePlan& plan_;
  plan::ModPlan derivative_;
  KernelFunction<BackwardKernelArgs> kernel_;
  Builder& build_;
  TileEmitter tile_;
  Value *keys_, *dscores_;
  std::optional<Fetcher> fetcher_;
  std::optional<TileDropout> dropout_;
};

BackwardEmitter::BackwardEmitter(const plan::BackwardKernelSpec& spec)
    : spec_(spec),
      plan_(spec.plan),
      derivative_(plan::plan_mod(spec.derivative.graph, spec.derivative_facts,
                                 spec.derivative.contributions, plan_.mods)),
      kernel_("backward", plan_.target, plan_.compute),
      build_(kernel_.build()),
      tile_(build_, plan_, kernel_.args().address()),
      keys_(tile_.args()[&TileArgs::keys]),
      dscores_(kernel_.args()[&BackwardKernelArgs::dscores]) {
  if (spec.sums_chunks()) fetcher_.emplace(build_, kernel_.args()[&BackwardKernelArgs::fetch]);
  if (spec.dropout) dropout_.emplace(build_, plan_, tile_.args());
}

Module BackwardEmitter::emit() && {
  multiply_queries();
  multiply_dout();
  differentiate();
  add_keys();
  if (fetcher_) fetcher_->finish();
  return std::move(kernel_).finish();
}

void BackwardEmitter::multiply_queries() {
  Value* scores = kernel_.args()[&BackwardKernelArgs::probabilities];
  Value* queries = tile_.args()[&TileArgs::queries];
  multiply(build_, plan_,
           {.a = keys_,
            .b = queries,
            .c = scores,
            .keys = tile_.count(),
            .dim = plan_.dim,
            .meanwhile = meanwhile()});
}

void BackwardEmitter::multiply_dout() {
  Value* dout = kernel_.args()[&BackwardKernelArgs::dout];
  Value* values = tile_.args()[&TileArgs::values];
  multiply(build_, plan_,
           {.a = values,
            .b = dout,
            .c = dscores_,
            .keys = tile_.count(),
            .dim = plan_.value_dim,
            .meanwhile = meanwhile()});
}

BackwardEmitter::Mods BackwardEmitter::prepare_mods() {
  Mods mods;
  if (spec_.score.kind != plan::ScoreForm::Kind::plain) {
    mods.score = tile_.prepare(spec_.score.graph, spec_.score_facts, plan_.compute,
                               tile_.args()[&TileArgs::score_captures]);
  }
  if (spec_.derives()) {
    mods.derivative = tile_.prepare(derivative_, plan_.compute,
                                    kernel_.args()[&BackwardKernelArgs::derivative_captures]);
  }
  if (spec_.masked) {
    mods.mask = tile_.prepare(spec_.mask, spec_.mask_facts, DType::f64,
                              tile_.args()[&TileArgs::mask_captures]);
  }
  return mods;
}

BackwardEmitter::Rows BackwardEmitter::load_rows() {
  Rows rows;
  rows.probabilities = kernel_.args()[&BackwardKernelArgs::probabilities];
  rows.dscores = kernel_.args()[&BackwardKernelArgs::dscores];
  for (int v = 0; v < plan_.vectors; ++v) {
    rows.lse2.push_back(tile_.load(kernel_.args()[&BackwardKernelArgs::lse2], v));
    rows.delta.push_back(tile_.load(kernel_.args()[&BackwardKernelArgs::delta], v));
    if (!spec_.exact_nonfinite) continue;
    Value* takes_part = tile_.load(kernel_.args()[&BackwardKernelArgs::takes_part], v);
    rows.takes_part.push_back(build_.CreateFCmpONE(takes_part, build_.numbers(0)));
  }
  return rows;
}

void BackwardEmitter::differentiate() {
  const Mods mods = prepare_mods();
  const Rows rows = load_rows();
  if (dropout_) dropout_->begin();
  tile_.for_keys([&](Value* i, Value* kv) {
    for (ModEmitter* mod : {mods.score.get(), mods.derivative.get(), mods.mask.get()})
      if (mod != nullptr) mod->key(kv, i);
    if (dropout_) dropout_->key(kv);
    for (int v = 0; v < plan_.vectors; ++v) differentiate_pair(mods, rows, {.i = i, .v = v});
  });
}

void BackwardEmitter::differentiate_pair(const Mods& mods, const Rows& rows, const Pair& pair) {
  const auto v = static_cast<std::size_t>(pair.v);
  Value* probability_at = tile_.at(rows.probabilities, pair.i, pair.v);
  Value* dscore_at = tile_.at(rows.dscores, pair.i, pair.v);
  Value* plain = build_.load(build_.reals(), probability_at);
  Value* poison = nullptr;
  Value* score = plain;
  if (mods.score)
    score = modified_score(build_, *mods.score, spec_.score.kind, pair.v, plain, poison);
  Value* probability =
      exp2_below(build_, build_.CreateFSub(score, rows.lse2[v]), build_.numbers(0));
  Value* dprobability = build_.load(build_.reals(), dscore_at);
  Value* weight = probability;  // what values were multiplied with
  if (dropout_) {
    Value* factor = dropout_->factor(pair.v);
    dprobability = build_.CreateFMul(dprobability, factor);
    weight = build_.CreateFMul(weight, factor);
  }
  Value* dscore = build_.CreateFMul(probability, build_.CreateFSub(dprobability, rows.delta[v]));
  Outputs outputs;
  if (mods.derivative) {
    // Scores of a mod that only adds are in powers of two.
    const bool general = spec_.score.kind == plan::ScoreForm::Kind::general;
    Value* natural = general ? plain : build_.CreateFMul(plain, build_.numbers(std::numbers::ln2));
    outputs = mods.derivative->pair(pair.v, natural, dscore);
    dscore = output(outputs, 0);
  }
  Value* visible = nullptr;
  if (mods.mask) {
    const std::vector<ModEmitter::Result> seen = mods.mask->pair(pair.v, nullptr);
    visible = build_.splat(seen.front().value);
    poison = tile_.visible_poison(poison, visible, seen.back().poison);
  }
  Value* hidden = build_.numbers(0);
  if (spec_.exact_nonfinite) {
    visible =
        visible != nullptr ? build_.CreateAnd(visible, rows.takes_part[v]) : rows.takes_part[v];
    hidden = build_.numbers(-0.0);
    dscore = build_.CreateFAdd(dscore, build_.numbers(0));  // -0 becomes 0
  }
  if (visible != nullptr) {
    weight = build_.CreateSelect(visible, weight, hidden);
    dscore = build_.CreateSelect(visible, dscore, hidden);
  }
  build_.store(weight, probability_at);
  build_.store(dscore, dscore_at);
  if (mods.derivative) store_contributions(outputs, visible, pair);
  if (poison != nullptr) tile_.report(poison);
}

// A contribution's offset in its gradient: the sum of its indices times the strides.
Value* BackwardEmitter::gradient_offset(const Outputs& outputs,
                                        const ir::Contribution& contribution, Value* strides,
                                        std::int64_t first_stride) {
  ::llvm::Type* int64 = build_.getInt64Ty();
  ::llvm::VectorType* offsets = build_.vector(int64);
  Value* sum = ::llvm::Constant::getNullValue(offsets);
  for (std::size_t axis = 0; axis < contribution.index.size(); ++axis) {
    const std::int64_t number = first_stride + static_cast<std::int64_t>(axis);
    Value* stride = build_.load(int64, build_.element(int64, strides, build_.index(number)));
    Value* index = build_.CreateSExtOrTrunc(output(outputs, contribution.index[axis]), offsets);
    sum = build_.CreateAdd(sum, build_.CreateMul(index, build_.splat(stride)));
  }
  return sum;
}

// What the pair adds to the gradients of captures, and where; the caller adds it in order.
void BackwardEmitter::store_contributions(const Outputs& outputs, Value* visible,
                                          const Pair& pair) {
  Value* values = kernel_.args()[&BackwardKernelArgs::contribution_values];
  Value* offsets = kernel_.args()[&BackwardKernelArgs::contribution_offsets];
  Value* strides = kernel_.args()[&BackwardKernelArgs::gradient_strides];
  Value* between = kernel_.args()[&BackwardKernelArgs::contribution_stride];
  ::llvm::Type* int64 = build_.getInt64Ty();
  std::int64_t first_stride = 0;
  for (std::size_t c = 0; c < spec_.derivative.contributions.size(); ++c) {
    const ir::Contribution& contribution = spec_.derivative.contributions[c];
    Value* counts = output(outputs, contribution.when);
    if (visible != nullptr) counts = build_.CreateAnd(counts, visible);
    Value* value =
        build_.CreateSelect(counts, output(outputs, contribution.value), build_.numbers(0));
    Value* first = build_.CreateMul(between, build_.index(static_cast<std::int64_t>(c)));
    Value* row = build_.CreateAdd(build_.CreateMul(pair.i, build_.index(plan_.width())),
                                  build_.index(pair.v * build_.lanes()));
    Value* at = build_.CreateAdd(first, row);
    build_.store(value, build_.element(build_.real(), values, at));

    const auto offset = [&] {
      return gradient_offset(outputs, contribution, strides, first_stride);
    };
    const auto store_all = [&] { build_.store(offset(), build_.element(int64, offsets, at)); };
    if (!derivative_.separable[c]) {
      store_all();
    } else {
      build_.when(build_.CreateICmpEQ(pair.i, build_.index(0)), store_all, true);
      if (pair.v == 0) {  // of the first query, for each key
        Value* key = build_.CreateAdd(build_.CreateAdd(first, build_.index(plan_.width())), pair.i);
        build_.store(build_.CreateExtractElement(offset(), build_.index(0)),
                     build_.element(int64, offsets, key));
      }
    }
    first_stride += static_cast<std::int64_t>(contribution.index.size());
  }
}

void BackwardEmitter::add_keys() {
  const TileProduct product{.a = keys_,
                            .b = dscores_,
                            .c = kernel_.args()[&BackwardKernelArgs::dq],
                            .keys = tile_.count(),
                            .dim = plan_.dim,
                            .meanwhile = meanwhile()};
  if (!spec_.sums_chunks()) return add(build_, plan_, product, spec_.exact_nonfinite);
  Value* chunks = kernel_.args()[&BackwardKernelArgs::chunks];
  Value* apart = build_.CreateICmpSGT(chunks, build_.index(0));
  build_.when(build_.CreateNot(apart), [&] { add(build_, plan_, product); });
  build_.when(apart, [&] {
    add_chunks(build_, plan_, product, kernel_.args()[&BackwardKernelArgs::chunk_ends], chunks);
  });
}

}  // namespace

Module emit_backward(const plan::BackwardKernelSpec& spec) { return BackwardEmitter(spec).emit(); }

}  // namespace treadle::emit::llvm
