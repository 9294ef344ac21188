// In: a spec; out: a module whose function `kernel` handles a tile and a block. Read emit_forward()
// last: it lists the steps.
#include "emit/llvm/forward.h"

#include <llvm/IR/Module.h>

#include <cstddef>
#include <limits>
#include <memory>

#include "emit/llvm/builder.h"
#include "emit/llvm/power.h"
#include "emit/llvm/tile.h"

namespace treadle::emit::llvm {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Marks scores that the mask hides in exact_nonfinite kernels, where -inf means a visible score of -inf. No
// operation makes this NaN; one that comes from outside is replaced by another.
constexpr std::uint64_t hidden_single = 0xffc0dead, hidden_double = 0xfff8deadbeefdeadull;

class ForwardEmitter {
 public:
  ForwardEmitter(Builder& build, const plan::ForwardKernelSpec& spec, Value* args)
      : build_(build), spec_(spec), plan_(spec.plan), tile_(build, spec.plan, args) {
    scores_ = tile_.pointer(offsetof(plan::ForwardKernelArgs, scores));
    for (int v = 0; v < plan_.vectors; ++v) {
      block_maximum_.push_back(build_.CreateAlloca(build_.reals()));
      tile_.store(build_.numbers(-infinity), block_maximum_.back(), 0);
    }
  }

  void multiply_queries();
  void apply_mods();
  void weigh();
  void add_values();

 private:
  void take_maximum(Value* score, int v);
  bool has_mods() const { return spec_.masked || spec_.score.kind != plan::ScoreForm::Kind::plain; }
  Value* bits_of(Value* reals) {
    return build_.CreateBitCast(reals, build_.vector(build_.getIntNTy(real_bits())));
  }
  unsigned real_bits() const { return plan_.compute == DType::f64 ? 64 : 32; }
  Value* hidden_bits() {
    return ::llvm::ConstantInt::get(build_.vector(build_.getIntNTy(real_bits())),
                                    plan_.compute == DType::f64 ? hidden_double : hidden_single);
  }
  bool marks_hidden() const { return spec_.masked && spec_.exact_nonfinite; }
  Value* is_hidden(Value* score) { return build_.CreateICmpEQ(bits_of(score), hidden_bits()); }

  Builder& build_;
  const plan::ForwardKernelSpec& spec_;
  const plan::TilePlan& plan_;
  TileEmitter tile_;
  Value* scores_;
  Values block_maximum_;  // addresses
};

void ForwardEmitter::take_maximum(Value* score, int v) {
  Value* address = block_maximum_[static_cast<std::size_t>(v)];
  Value* old = tile_.load(address, 0);
  Value* next = build_.larger(score, old);
  if (spec_.exact_nonfinite) {
    // A visible NaN wins and stays.
    Value* nan = build_.CreateFCmpUNO(score, score);
    Value* stays = build_.CreateFCmpUNO(old, old);
    next = build_.CreateSelect(build_.CreateOr(nan, stays),
                               build_.numbers(std::numeric_limits<double>::quiet_NaN()), next);
    if (marks_hidden()) next = build_.CreateSelect(is_hidden(score), old, next);
  }
  tile_.store(next, address, 0);
}

void ForwardEmitter::multiply_queries() {
  TileEmitter::Each each;
  if (!has_mods()) each = [&](Value* score, int v) { take_maximum(score, v); };
  tile_.multiply(tile_.pointer(offsetof(plan::TileArgs, keys)), plan_.dim,
                 tile_.pointer(offsetof(plan::TileArgs, queries)), scores_, each);
}

void ForwardEmitter::apply_mods() {
  if (!has_mods()) return;
  std::unique_ptr<ModEmitter> score_mod, mask;
  if (spec_.score.kind != plan::ScoreForm::Kind::plain) {
    score_mod = tile_.prepare(spec_.score.graph, spec_.score_facts, plan_.compute,
                              offsetof(plan::TileArgs, score_captures));
  }
  if (spec_.masked)
    mask = tile_.prepare(spec_.mask, spec_.mask_facts, DType::f64,
                         offsetof(plan::TileArgs, mask_captures));

  tile_.for_keys([&](Value* i, Value* kv) {
    if (score_mod) score_mod->key(kv, i);
    if (mask) mask->key(kv, i);
    for (int v = 0; v < plan_.vectors; ++v) {
      Value* address = tile_.at(scores_, i, v);
      Value* score = build_.load(build_.reals(), address);
      Value* poison = nullptr;
      if (score_mod) score = tile_.modified(*score_mod, spec_.score.kind, v, score, poison);
      if (mask) {
        const ModEmitter::Result seen = mask->pair(v, nullptr).front();
        Value* visible = build_.splat(seen.value);
        if (marks_hidden()) {  // a NaN of the caller's may have the mark's bits
          score = build_.CreateSelect(
              is_hidden(score), build_.numbers(std::numeric_limits<double>::quiet_NaN()), score);
        }
        Value* hidden = marks_hidden() ? build_.CreateBitCast(hidden_bits(), build_.reals())
                                       : static_cast<Value*>(build_.numbers(-infinity));
        score = build_.CreateSelect(visible, score, hidden);
        if (poison != nullptr) poison = build_.CreateAnd(poison, visible);
        if (seen.poison != nullptr) {
          Value* unsure = build_.splat(seen.poison);
          poison = poison == nullptr ? unsure : build_.CreateOr(poison, unsure);
        }
      }
      build_.store(score, address);
      take_maximum(score, v);
      if (poison != nullptr) tile_.report(poison);
    }
  });
}

// Scores become weights 2^(s - m); what was summed before is rescaled where m grew.
void ForwardEmitter::weigh() {
  Value* maxima = tile_.pointer(offsetof(plan::ForwardKernelArgs, maximum));
  Value* weights = tile_.pointer(offsetof(plan::ForwardKernelArgs, weight));
  Values power, change;  // m, and old m minus new m
  Value* changed = nullptr;
  for (int v = 0; v < plan_.vectors; ++v) {
    Value* old = tile_.load(maxima, v);
    Value* block = tile_.load(block_maximum_[static_cast<std::size_t>(v)], 0);
    Value* now = build_.larger(block, old);
    if (spec_.exact_nonfinite) {
      Value* nan =
          build_.CreateOr(build_.CreateFCmpUNO(block, block), build_.CreateFCmpUNO(old, old));
      now = build_.CreateSelect(nan, build_.numbers(std::numeric_limits<double>::quiet_NaN()), now);
    }
    tile_.store(now, maxima, v);
    // Before anything was seen, any finite m will do for the zeros summed so far.
    Value* nothing = build_.CreateFCmpOEQ(now, build_.numbers(-infinity));
    power.push_back(build_.CreateSelect(nothing, build_.numbers(0), round_up(build_, now)));
    Value* first = build_.CreateFCmpOEQ(old, build_.numbers(-infinity));
    Value* before = build_.CreateSelect(first, power.back(), round_up(build_, old));
    change.push_back(build_.CreateFSub(before, power.back()));
    Value* differs = build_.CreateFCmpONE(change.back(), build_.numbers(0));
    changed = changed == nullptr ? differs : build_.CreateOr(changed, differs);
  }

  build_.when(tile_.any(changed), [&] {
    Values factor;
    for (int v = 0; v < plan_.vectors; ++v) {
      factor.push_back(scale_down(build_, build_.numbers(1), change[static_cast<std::size_t>(v)]));
      tile_.store(build_.CreateFMul(tile_.load(weights, v), factor.back()), weights, v);
    }
    Value* sums = tile_.pointer(offsetof(plan::ForwardKernelArgs, sums));
    build_.loop(build_.index(0), build_.index(plan_.value_dim), 1, [&](Value* d) {
      for (int v = 0; v < plan_.vectors; ++v) {
        Value* address = tile_.at(sums, d, v);
        Value* scaled = build_.CreateFMul(build_.load(build_.reals(), address),
                                          factor[static_cast<std::size_t>(v)]);
        build_.store(scaled, address);
      }
    });
  });

  Values total;
  for (int v = 0; v < plan_.vectors; ++v) total.push_back(tile_.load(weights, v));
  total =
      build_.loop(build_.index(0), tile_.count(), 1, total, [&](Value* i, const Values& so_far) {
        Values next;
        for (int v = 0; v < plan_.vectors; ++v) {
          Value* address = tile_.at(scores_, i, v);
          Value* score = build_.load(build_.reals(), address);
          Value* weight = power_below(build_, score, power[static_cast<std::size_t>(v)]);
          if (marks_hidden())
            weight = build_.CreateSelect(is_hidden(score), build_.numbers(-0.0), weight);
          build_.store(weight, address);
          next.push_back(build_.CreateFAdd(so_far[static_cast<std::size_t>(v)], weight));
        }
        return next;
      });
  for (int v = 0; v < plan_.vectors; ++v)
    tile_.store(total[static_cast<std::size_t>(v)], weights, v);
}

void ForwardEmitter::add_values() {
  tile_.add(tile_.pointer(offsetof(plan::TileArgs, values)), plan_.value_dim, scores_,
            tile_.pointer(offsetof(plan::ForwardKernelArgs, sums)), marks_hidden());
}

}  // namespace

Module emit_forward(const plan::ForwardKernelSpec& spec) {
  Module made = make_module("forward", spec.plan.target);
  ::llvm::LLVMContext& context = *made.context;
  auto* type = ::llvm::FunctionType::get(::llvm::Type::getVoidTy(context),
                                         {::llvm::PointerType::getUnqual(context)}, false);
  ::llvm::Function* function = make_function(*made.module, "kernel", type, spec.plan.target);
  Builder build(function, spec.plan.target, spec.plan.compute);

  ForwardEmitter block(build, spec, function->getArg(0));
  block.multiply_queries();
  block.apply_mods();
  block.weigh();
  block.add_values();
  build.CreateRetVoid();
  return made;
}

}  // namespace treadle::emit::llvm
