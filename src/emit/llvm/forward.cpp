// The forward kernel: online softmax of one tile of queries over one block of keys.
//
// In: a spec. Out: a module whose function `kernel` continues m, l and O of a tile. Read
// ForwardEmitter::emit() first: it lists the steps.
//
// With K, V the block's keys and values, Q the tile's queries (multiplied with the scale), and
// whatever the calls before left in m, l and O:
//
//   s  = K Q^T                                        multiply_queries
//   s  = log2(e) * mod(s), -inf where the mask hides  apply_mods
//   m' = max(m, max_k s)                              apply_mods or multiply_queries; weigh
//   p  = 2^(s - ceil m')                              weigh
//   l  = l * 2^(ceil m - ceil m') + sum_k p           weigh
//   p  = 0 where the pair is dropped                  weigh
//   O  = O * 2^(ceil m - ceil m') + V^T p             weigh (the factor), add_values (the sum)
//
// Where the keys are those of whole chunks, sum_k p and V^T p are one after the other those of each
// chunk, as if chunks were merged: scaling is exact, so it does not matter when it is done.
//
// Powers are of whole numbers, so rescaling rounds nothing. Names: `maximum` is m, `weight` is l,
// `sums` is O, `scores` is s and then p. All are transposed: rows of keys or dims, queries in the
// lanes.
#include "emit/llvm/forward.h"

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "emit/llvm/dropout.h"
#include "emit/llvm/exp2.h"
#include "emit/llvm/fetch.h"
#include "emit/llvm/kernel_function.h"
#include "emit/llvm/products.h"
#include "emit/llvm/scale.h"
#include "emit/llvm/tile.h"

namespace treadle::emit::llvm {
namespace {

using plan::ForwardKernelArgs;
using plan::TileArgs;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// Marks scores that the mask hides in exact_nonfinite kernels, where -inf is a visible score of
// -inf. No operation makes this NaN; one that comes from outside is replaced by another.
constexpr std::uint64_t hidden_single = 0xffc0dead, hidden_double = 0xfff8deadbeefdeadull;

class ForwardEmitter {
 public:
  explicit ForwardEmitter(const plan::ForwardKernelSpec& spec);

  Module emit() &&;

 private:
  void multiply_queries();
  void apply_mods();
  void weigh();
  void add_values();

  void take_maximum(Value* score, int v);
  Value* hide(Value* score, Value* visible);
  Value* new_maximum(Value* old, int v);
  void rescale(Value* weights, const Values& change);
  void for_chunks(const std::function<void(Value*, Value*)>& body);
  void make_weights(Value* weights, const Values& power);

  bool has_mods() const { return spec_.masked || spec_.score.kind != plan::ScoreForm::Kind::plain; }
  // Whether there is code for the keys of several chunks.
  bool sums_chunks() const { return plan_.sparse && !spec_.exact_nonfinite; }
  // What products do besides multiplying.
  std::function<void()> meanwhile() {
    if (!fetcher_) return {};
    return [this] { fetcher_->fetch(); };
  }
  bool marks_hidden() const { return spec_.masked && spec_.exact_nonfinite; }
  ::llvm::VectorType* bits() {
    return build_.vector(build_.getIntNTy(build_.real()->getScalarSizeInBits()));
  }
  Value* hidden_bits() {
    return ::llvm::ConstantInt::get(bits(),
                                    plan_.compute == DType::f64 ? hidden_double : hidden_single);
  }
  Value* is_hidden(Value* score) {
    return build_.CreateICmpEQ(build_.CreateBitCast(score, bits()), hidden_bits());
  }
  Value* is_nan(Value* value) { return build_.CreateFCmpUNO(value, value); }

  const plan::ForwardKernelSpec& spec_;
  const plan::TilePlan& plan_;
  KernelFunction<ForwardKernelArgs> kernel_;
  Builder& build_;
  TileEmitter tile_;
  Value* scores_;
  Value* apart_;     // whether the keys are those of whole chunks, which are summed on their own
  Value* only_end_;  // the address of an i32: where all keys end
  std::optional<Fetcher> fetcher_;
  std::optional<TileDropout> dropout_;
  Values block_maximum_;  // addresses, by vector: the maximum over this block's keys
};

ForwardEmitter::ForwardEmitter(const plan::ForwardKernelSpec& spec)
    : spec_(spec),
      plan_(spec.plan),
      kernel_("forward", plan_.target, plan_.compute),
      build_(kernel_.build()),
      tile_(build_, plan_, kernel_.args().address()),
      scores_(kernel_.args()[&ForwardKernelArgs::scores]),
      apart_(sums_chunks()
                 ? build_.CreateICmpSGT(kernel_.args()[&ForwardKernelArgs::chunks], build_.index(0))
                 : build_.getFalse()) {
  only_end_ = build_.CreateAlloca(build_.getInt32Ty());
  build_.CreateStore(build_.CreateTrunc(tile_.count(), build_.getInt32Ty()), only_end_);
  if (sums_chunks()) fetcher_.emplace(build_, kernel_.args()[&ForwardKernelArgs::fetch]);
  if (spec.dropout) dropout_.emplace(build_, plan_, tile_.args());
  for (int v = 0; v < plan_.vectors; ++v) {
    block_maximum_.push_back(build_.CreateAlloca(build_.reals()));
    tile_.store(build_.numbers(-infinity), block_maximum_.back(), 0);
  }
}

Module ForwardEmitter::emit() && {
  multiply_queries();
  apply_mods();
  weigh();
  add_values();
  if (fetcher_) fetcher_->finish();
  return std::move(kernel_).finish();
}

void ForwardEmitter::take_maximum(Value* score, int v) {
  Value* address = block_maximum_[static_cast<std::size_t>(v)];
  Value* old = tile_.load(address, 0);
  Value* next = build_.larger(score, old);
  if (spec_.exact_nonfinite) {
    // A visible NaN wins and stays.
    Value* found = is_nan(score);
    Value* stays = is_nan(old);
    next = build_.CreateSelect(build_.CreateOr(found, stays), build_.numbers(nan), next);
    if (marks_hidden()) next = build_.CreateSelect(is_hidden(score), old, next);
  }
  tile_.store(next, address, 0);
}

// Without mods the maximum is taken while scores are in registers.
void ForwardEmitter::multiply_queries() {
  Epilogue epilogue;
  if (!has_mods()) epilogue = [&](Value* score, int v) { take_maximum(score, v); };
  Value* queries = tile_.args()[&TileArgs::queries];
  Value* keys = tile_.args()[&TileArgs::keys];
  multiply(build_, plan_,
           {.a = keys,
            .b = queries,
            .c = scores_,
            .keys = tile_.count(),
            .dim = plan_.dim,
            .meanwhile = meanwhile()},
           epilogue);
}

Value* ForwardEmitter::hide(Value* score, Value* visible) {
  if (!marks_hidden()) return build_.CreateSelect(visible, score, build_.numbers(-infinity));
  // A NaN of the caller's may have the mark's bits.
  score = build_.CreateSelect(is_hidden(score), build_.numbers(nan), score);
  Value* mark = build_.CreateBitCast(hidden_bits(), build_.reals());
  return build_.CreateSelect(visible, score, mark);
}

void ForwardEmitter::apply_mods() {
  if (!has_mods()) return;
  std::unique_ptr<ModEmitter> score_mod, mask;
  if (spec_.score.kind != plan::ScoreForm::Kind::plain) {
    score_mod = tile_.prepare(spec_.score.graph, spec_.score_facts, plan_.compute,
                              tile_.args()[&TileArgs::score_captures]);
  }
  if (spec_.masked) {
    mask = tile_.prepare(spec_.mask, spec_.mask_facts, DType::f64,
                         tile_.args()[&TileArgs::mask_captures]);
  }
  tile_.for_keys([&](Value* i, Value* kv) {
    if (score_mod) score_mod->key(kv, i);
    if (mask) mask->key(kv, i);
    for (int v = 0; v < plan_.vectors; ++v) {
      Value* address = tile_.at(scores_, i, v);
      Value* score = build_.load(build_.reals(), address);
      Value* poison = nullptr;
      if (score_mod) score = modified_score(build_, *score_mod, spec_.score.kind, v, score, poison);
      if (mask) {
        const std::vector<ModEmitter::Result> seen = mask->pair(v, nullptr);
        Value* visible = build_.splat(seen.front().value);
        score = hide(score, visible);
        poison = tile_.visible_poison(poison, visible, seen.back().poison);
      }
      build_.store(score, address);
      take_maximum(score, v);
      if (poison != nullptr) tile_.report(poison);
    }
  });
}

Value* ForwardEmitter::new_maximum(Value* old, int v) {
  Value* block = tile_.load(block_maximum_[static_cast<std::size_t>(v)], 0);
  Value* now = build_.larger(block, old);
  if (!spec_.exact_nonfinite) return now;
  return build_.CreateSelect(build_.CreateOr(is_nan(block), is_nan(old)), build_.numbers(nan), now);
}

// Scores become weights; what was summed before is rescaled where ceil m grew.
void ForwardEmitter::weigh() {
  Value* maxima = kernel_.args()[&ForwardKernelArgs::maximum];
  Value* weights = kernel_.args()[&ForwardKernelArgs::weight];
  Values power, change;
  Value* changed = nullptr;
  for (int v = 0; v < plan_.vectors; ++v) {
    Value* old = tile_.load(maxima, v);
    Value* now = new_maximum(old, v);
    tile_.store(now, maxima, v);
    const Growth grown = growth(build_, old, now);
    power.push_back(grown.power);
    change.push_back(grown.change);
    Value* differs = build_.CreateFCmpONE(change.back(), build_.numbers(0));
    changed = changed == nullptr ? differs : build_.CreateOr(changed, differs);
  }
  build_.when(build_.any(changed), [&] { rescale(weights, change); });
  make_weights(weights, power);
}

void ForwardEmitter::rescale(Value* weights, const Values& change) {
  Values factor;
  for (int v = 0; v < plan_.vectors; ++v) {
    factor.push_back(scale_down(build_, build_.numbers(1), change[static_cast<std::size_t>(v)]));
    tile_.store(build_.CreateFMul(tile_.load(weights, v), factor.back()), weights, v);
  }
  Value* sums = kernel_.args()[&ForwardKernelArgs::sums];
  build_.loop(build_.index(0), build_.index(plan_.value_dim), 1, [&](Value* d) {
    for (int v = 0; v < plan_.vectors; ++v) {
      Value* address = tile_.at(sums, d, v);
      Value* scaled = build_.CreateFMul(build_.load(build_.reals(), address),
                                        factor[static_cast<std::size_t>(v)]);
      build_.store(scaled, address);
    }
  });
}

// Calls body(begin, end) for the places of each chunk, or for all at once.
void ForwardEmitter::for_chunks(const std::function<void(Value*, Value*)>& body) {
  Value* ends =
      build_.CreateSelect(apart_, kernel_.args()[&ForwardKernelArgs::chunk_ends], only_end_);
  Value* chunks =
      build_.CreateSelect(apart_, kernel_.args()[&ForwardKernelArgs::chunks], build_.index(1));
  build_.loop(build_.index(0), chunks, 1, {build_.index(0)}, [&](Value* i, const Values& begin) {
    ::llvm::Type* int32 = build_.getInt32Ty();
    Value* end = build_.CreateSExt(build_.CreateLoad(int32, build_.element(int32, ends, i)),
                                   build_.getInt64Ty());
    body(begin.front(), end);
    return Values{end};
  });
}

void ForwardEmitter::make_weights(Value* weights, const Values& power) {
  if (dropout_) dropout_->begin();
  for_chunks([&](Value* begin, Value* end) {
    Values total;
    for (int v = 0; v < plan_.vectors; ++v)
      total.push_back(build_.CreateSelect(apart_, build_.numbers(0), tile_.load(weights, v)));
    const auto add_key = [&](Value* i, const Values& so_far) {
      Values next;
      if (dropout_) dropout_->key(tile_.position_of(i));
      for (int v = 0; v < plan_.vectors; ++v) {
        const auto at = static_cast<std::size_t>(v);
        Value* address = tile_.at(scores_, i, v);
        Value* score = build_.load(build_.reals(), address);
        Value* weight = exp2_below(build_, score, power[at]);
        Value* kept = dropout_ ? dropout_->kept(weight, v) : weight;
        if (marks_hidden()) {
          Value* hidden = is_hidden(score);
          weight = build_.CreateSelect(hidden, build_.numbers(-0.0), weight);
          kept = build_.CreateSelect(hidden, build_.numbers(-0.0), kept);
        }
        build_.store(kept, address);
        next.push_back(build_.CreateFAdd(so_far[at], weight));
      }
      return next;
    };
    total = build_.loop(begin, end, 1, total, add_key);
    for (int v = 0; v < plan_.vectors; ++v) {
      const auto at = static_cast<std::size_t>(v);
      // Adding -0 changes nothing, not even a zero's sign.
      Value* before = build_.CreateSelect(apart_, tile_.load(weights, v), build_.numbers(-0.0));
      tile_.store(build_.CreateFAdd(before, total[at]), weights, v);
    }
  });
}

void ForwardEmitter::add_values() {
  const TileProduct product{.a = tile_.args()[&TileArgs::values],
                            .b = scores_,
                            .c = kernel_.args()[&ForwardKernelArgs::sums],
                            .keys = tile_.count(),
                            .dim = plan_.value_dim,
                            .meanwhile = meanwhile()};
  if (!sums_chunks()) return add(build_, plan_, product, marks_hidden());
  build_.when(build_.CreateNot(apart_), [&] { add(build_, plan_, product, marks_hidden()); });
  build_.when(apart_, [&] {
    add_chunks(build_, plan_, product, kernel_.args()[&ForwardKernelArgs::chunk_ends],
               kernel_.args()[&ForwardKernelArgs::chunks]);
  });
}

}  // namespace

Module emit_forward(const plan::ForwardKernelSpec& spec) { return ForwardEmitter(spec).emit(); }

}  // namespace treadle::emit::llvm
