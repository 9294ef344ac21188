// In: a spec; out: a module whose function `kernel` handles a tile and a block. Read emit_block()
// last: it lists the steps.
#include "emit/llvm/forward.h"

#include <llvm/IR/Module.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <numbers>

#include "emit/llvm/builder.h"
#include "emit/llvm/mod.h"
#include "emit/llvm/power.h"
#include "emit/llvm/product.h"

namespace treadle::emit {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Marks scores that the mask hides in careful kernels, where -inf means a visible score of -inf. No
// operation makes this NaN.
constexpr std::uint64_t hidden_single = 0xffc0dead, hidden_double = 0xfff8deadbeefdeadull;

class BlockEmitter {
 public:
  BlockEmitter(Builder& build, const BlockSpec& spec, Value* args)
      : build_(build), spec_(spec), plan_(spec.plan), args_(args) {
    count_ = word(offsetof(BlockArgs, count));
    scores_ = pointer(offsetof(BlockArgs, scores));
    for (int v = 0; v < plan_.vectors; ++v) {
      block_maximum_.push_back(build_.CreateAlloca(build_.reals()));
      store(build_.numbers(-infinity), block_maximum_.back(), 0);
    }
  }

  void multiply_queries();
  void apply_mods();
  void weigh();
  void add_values();

 private:
  Value* field(std::size_t offset) {
    return build_.element(build_.getInt8Ty(), args_,
                          build_.index(static_cast<std::int64_t>(offset)));
  }
  Value* word(std::size_t offset) { return build_.CreateLoad(build_.getInt64Ty(), field(offset)); }
  Value* pointer(std::size_t offset) { return build_.CreateLoad(build_.getPtrTy(), field(offset)); }

  // Vector v of row `row` of an array of rows of the plan's width.
  Value* at(Value* array, Value* row, int v) {
    Value* element = build_.CreateNSWAdd(build_.CreateNSWMul(row, build_.index(plan_.width())),
                                         build_.index(v * build_.lanes()));
    return build_.element(build_.real(), array, element);
  }
  Value* load(Value* array, int v) {
    return build_.load(build_.reals(), at(array, build_.index(0), v));
  }
  void store(Value* value, Value* array, int v) {
    build_.store(value, at(array, build_.index(0), v));
  }

  void multiply(Value* first_key, int rows);
  void take_maximum(Value* score, int v);
  bool has_mods() const { return spec_.masked || spec_.score.kind != plan::ScoreForm::Kind::plain; }
  std::unique_ptr<ModEmitter> prepare(const ir::Graph& graph, const plan::ModFacts& facts,
                                      DType real, std::size_t words);
  Value* modified(ModEmitter& mod, int v, Value* score, Value*& poison);
  Value* bits_of(Value* reals) {
    return build_.CreateBitCast(reals, build_.vector(build_.getIntNTy(real_bits())));
  }
  unsigned real_bits() const { return plan_.compute == DType::f64 ? 64 : 32; }
  Value* hidden_bits() {
    return llvm::ConstantInt::get(build_.vector(build_.getIntNTy(real_bits())),
                                  plan_.compute == DType::f64 ? hidden_double : hidden_single);
  }
  Value* any(Value* truth) {
    return build_.CreateICmpNE(
        build_.CreateBitCast(truth, build_.getIntNTy(static_cast<unsigned>(build_.lanes()))),
        build_.getIntN(static_cast<unsigned>(build_.lanes()), 0));
  }

  Builder& build_;
  const BlockSpec& spec_;
  const plan::ForwardPlan& plan_;
  Value* args_;
  Value* count_;
  Value* scores_;
  Values block_maximum_;  // addresses
};

void BlockEmitter::take_maximum(Value* score, int v) {
  Value* address = block_maximum_[static_cast<std::size_t>(v)];
  Value* old = load(address, 0);
  Value* next = build_.larger(score, old);
  if (spec_.careful) {
    // A visible NaN wins and stays.
    Value* nan = build_.CreateFCmpUNO(score, score);
    Value* stays = build_.CreateFCmpUNO(old, old);
    next = build_.CreateSelect(build_.CreateOr(nan, stays),
                               build_.numbers(std::numeric_limits<double>::quiet_NaN()), next);
    Value* hidden = build_.CreateICmpEQ(bits_of(score), hidden_bits());
    next = build_.CreateSelect(hidden, old, next);
  }
  store(next, address, 0);
}

// Scores of `rows` keys from first_key on.
void BlockEmitter::multiply(Value* first_key, int rows) {
  Value* keys = pointer(offsetof(BlockArgs, keys));
  Product product{.rows = rows,
                  .vectors = plan_.vectors,
                  .a = build_.element(build_.real(), keys,
                                      build_.CreateNSWMul(first_key, build_.index(plan_.dim))),
                  .a_row = plan_.dim,
                  .a_step = 1,
                  .b = pointer(offsetof(BlockArgs, queries)),
                  .b_step = plan_.width(),
                  .depth = build_.index(plan_.dim)};
  const Values zeros(static_cast<std::size_t>(rows * plan_.vectors), build_.numbers(0));
  const Values scores = accumulate(build_, product, zeros);
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < plan_.vectors; ++v) {
      Value* score = scores[static_cast<std::size_t>(r * plan_.vectors + v)];
      build_.store(score, at(scores_, build_.CreateNSWAdd(first_key, build_.index(r)), v));
      if (!has_mods()) take_maximum(score, v);
    }
  }
}

void BlockEmitter::multiply_queries() {
  // A last, shorter group begins earlier and does some keys again: the same scores.
  Value* rows = build_.index(plan_.rows);
  build_.when(build_.CreateICmpSGE(count_, rows), [&] {
    Value* last = build_.CreateNSWSub(count_, rows);
    build_.loop(build_.index(0), count_, plan_.rows, [&](Value* k) {
      multiply(build_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, k, last), plan_.rows);
    });
  });
  if (plan_.rows == 1) return;
  build_.when(build_.CreateICmpSLT(count_, rows),
              [&] { build_.loop(build_.index(0), count_, 1, [&](Value* k) { multiply(k, 1); }); });
}

// The part of a mod that is computed once per call.
std::unique_ptr<ModEmitter> BlockEmitter::prepare(const ir::Graph& graph,
                                                  const plan::ModFacts& facts, DType real,
                                                  std::size_t words) {
  auto mod = std::make_unique<ModEmitter>(
      build_, graph,
      ModOptions{.facts = facts, .real = real, .words = pointer(words), .vectors = plan_.vectors});
  const auto narrow = [&](std::size_t offset) {
    return build_.CreateTrunc(word(offset), build_.getInt32Ty());
  };
  mod->head(narrow(offsetof(BlockArgs, b)), narrow(offsetof(BlockArgs, h)));
  Values q, active;
  llvm::VectorType* integers = build_.vector(build_.getInt32Ty());
  Value* rows = pointer(offsetof(BlockArgs, rows));
  for (int v = 0; v < plan_.vectors; ++v) {
    Value* address = build_.element(build_.getInt32Ty(), rows, build_.index(v * build_.lanes()));
    q.push_back(build_.load(integers, address));
    std::vector<llvm::Constant*> lane;
    for (int i = 0; i < build_.lanes(); ++i)
      lane.push_back(build_.getInt32(static_cast<std::uint32_t>(v * build_.lanes() + i)));
    active.push_back(build_.CreateICmpSLT(llvm::ConstantVector::get(lane),
                                          build_.splat(narrow(offsetof(BlockArgs, active)))));
  }
  mod->queries(q, active);
  if (mod->staged() > 0) {
    const auto bytes =
        static_cast<std::uint64_t>(mod->staged() * plan_.key_block * plan_.width() * 8);
    llvm::IRBuilder<> entry(&*build_.GetInsertBlock()->getParent()->getEntryBlock().begin());
    auto* room = entry.CreateAlloca(build_.getInt8Ty(), build_.getInt64(bytes));
    room->setAlignment(llvm::Align(64));
    mod->stage(pointer(offsetof(BlockArgs, indices)), count_, plan_.key_block, room);
  }
  return mod;
}

// log2(e) times what the mod makes of a score.
Value* BlockEmitter::modified(ModEmitter& mod, int v, Value* score, Value*& poison) {
  Value* log2e = build_.number(std::numbers::log2e);
  const bool added = spec_.score.kind == plan::ScoreForm::Kind::added;
  const ModEmitter::Result result = mod.pair(v, added ? nullptr : score).front();
  if (result.poison != nullptr) poison = build_.splat(result.poison);
  if (!result.value->getType()->isVectorTy() && added)  // one multiplication for all lanes
    return build_.CreateFAdd(score, build_.splat(build_.CreateFMul(result.value, log2e)));
  Value* value = build_.splat(result.value);
  return added ? build_.fma(value, build_.splat(log2e), score)
               : build_.CreateFMul(value, build_.splat(log2e));
}

void BlockEmitter::apply_mods() {
  if (!has_mods()) return;
  std::unique_ptr<ModEmitter> score_mod, mask;
  if (spec_.score.kind != plan::ScoreForm::Kind::plain) {
    score_mod = prepare(spec_.score.graph, spec_.score_facts, plan_.compute,
                        offsetof(BlockArgs, score_words));
  }
  if (spec_.masked)
    mask = prepare(spec_.mask, spec_.mask_facts, DType::f64, offsetof(BlockArgs, mask_words));

  Value* indices = pointer(offsetof(BlockArgs, indices));
  build_.loop(build_.index(0), count_, 1, [&](Value* i) {
    Value* kv =
        build_.CreateLoad(build_.getInt32Ty(), build_.element(build_.getInt32Ty(), indices, i));
    if (score_mod) score_mod->key(kv, i);
    if (mask) mask->key(kv, i);
    for (int v = 0; v < plan_.vectors; ++v) {
      Value* address = at(scores_, i, v);
      Value* score = build_.load(build_.reals(), address);
      Value* poison = nullptr;
      if (score_mod) score = modified(*score_mod, v, score, poison);
      if (mask) {
        const ModEmitter::Result seen = mask->pair(v, nullptr).front();
        Value* visible = build_.splat(seen.value);
        Value* hidden = spec_.careful ? build_.CreateBitCast(hidden_bits(), build_.reals())
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
      if (poison != nullptr) {
        build_.when(
            any(poison),
            [&] { build_.CreateStore(build_.getInt64(1), pointer(offsetof(BlockArgs, poisoned))); },
            true);
      }
    }
  });
}

// Scores become weights 2^(s - m); what was summed before is rescaled where m grew.
void BlockEmitter::weigh() {
  Value* maxima = pointer(offsetof(BlockArgs, maximum));
  Value* weights = pointer(offsetof(BlockArgs, weight));
  Values power, change;  // m, and old m minus new m
  Value* changed = nullptr;
  for (int v = 0; v < plan_.vectors; ++v) {
    Value* old = load(maxima, v);
    Value* block = load(block_maximum_[static_cast<std::size_t>(v)], 0);
    Value* now = build_.larger(block, old);
    if (spec_.careful) {
      Value* nan =
          build_.CreateOr(build_.CreateFCmpUNO(block, block), build_.CreateFCmpUNO(old, old));
      now = build_.CreateSelect(nan, build_.numbers(std::numeric_limits<double>::quiet_NaN()), now);
    }
    store(now, maxima, v);
    // Before anything was seen, any finite m will do for the zeros summed so far.
    Value* nothing = build_.CreateFCmpOEQ(now, build_.numbers(-infinity));
    power.push_back(build_.CreateSelect(nothing, build_.numbers(0), round_up(build_, now)));
    Value* first = build_.CreateFCmpOEQ(old, build_.numbers(-infinity));
    Value* before = build_.CreateSelect(first, power.back(), round_up(build_, old));
    change.push_back(build_.CreateFSub(before, power.back()));
    Value* differs = build_.CreateFCmpONE(change.back(), build_.numbers(0));
    changed = changed == nullptr ? differs : build_.CreateOr(changed, differs);
  }

  build_.when(any(changed), [&] {
    Values factor;
    for (int v = 0; v < plan_.vectors; ++v) {
      factor.push_back(scale_down(build_, build_.numbers(1), change[static_cast<std::size_t>(v)]));
      store(build_.CreateFMul(load(weights, v), factor.back()), weights, v);
    }
    Value* sums = pointer(offsetof(BlockArgs, sums));
    build_.loop(build_.index(0), build_.index(plan_.value_dim), 1, [&](Value* d) {
      for (int v = 0; v < plan_.vectors; ++v) {
        Value* address = at(sums, d, v);
        Value* scaled = build_.CreateFMul(build_.load(build_.reals(), address),
                                          factor[static_cast<std::size_t>(v)]);
        build_.store(scaled, address);
      }
    });
  });

  Values total;
  for (int v = 0; v < plan_.vectors; ++v) total.push_back(load(weights, v));
  total = build_.loop(build_.index(0), count_, 1, total, [&](Value* i, const Values& so_far) {
    Values next;
    for (int v = 0; v < plan_.vectors; ++v) {
      Value* address = at(scores_, i, v);
      Value* score = build_.load(build_.reals(), address);
      Value* weight = power_below(build_, score, power[static_cast<std::size_t>(v)]);
      if (spec_.careful) {
        Value* hidden = build_.CreateICmpEQ(bits_of(score), hidden_bits());
        weight = build_.CreateSelect(hidden, build_.numbers(-0.0), weight);
      }
      build_.store(weight, address);
      next.push_back(build_.CreateFAdd(so_far[static_cast<std::size_t>(v)], weight));
    }
    return next;
  });
  for (int v = 0; v < plan_.vectors; ++v) store(total[static_cast<std::size_t>(v)], weights, v);
}

void BlockEmitter::add_values() {
  Value* values = pointer(offsetof(BlockArgs, values));
  Value* sums = pointer(offsetof(BlockArgs, sums));
  const auto add = [&](Value* first, int rows) {
    Values c;
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < plan_.vectors; ++v)
        c.push_back(
            build_.load(build_.reals(), at(sums, build_.CreateNSWAdd(first, build_.index(r)), v)));
    }
    c = accumulate(build_,
                   {.rows = rows,
                    .vectors = plan_.vectors,
                    .a = build_.element(build_.real(), values, first),
                    .a_row = 1,
                    .a_step = plan_.value_dim,
                    .b = scores_,
                    .b_step = plan_.width(),
                    .depth = count_,
                    .skip_hidden = spec_.careful},
                   std::move(c));
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < plan_.vectors; ++v)
        build_.store(c[static_cast<std::size_t>(r * plan_.vectors + v)],
                     at(sums, build_.CreateNSWAdd(first, build_.index(r)), v));
    }
  };
  const std::int64_t rest = plan_.value_dim % plan_.rows;
  const std::int64_t whole = plan_.value_dim - rest;
  if (whole > 0)
    build_.loop(build_.index(0), build_.index(whole), plan_.rows,
                [&](Value* d) { add(d, plan_.rows); });
  if (rest > 0) add(build_.index(whole), static_cast<int>(rest));
}

}  // namespace

base::Hash key(const BlockSpec& spec) {
  base::Hasher hasher;
  hasher.add("forward block")
      .add(hash(spec.plan))
      .add(spec.score.kind)
      .add(spec.masked)
      .add(spec.careful);
  if (spec.score.kind != plan::ScoreForm::Kind::plain)
    hasher.add(spec.score.graph.hash()).add(hash(spec.score_facts));
  if (spec.masked) hasher.add(spec.mask.hash()).add(hash(spec.mask_facts));
  return hasher.finish();
}

Module emit_block(const BlockSpec& spec) {
  Module made = make_module("forward", spec.plan.target);
  llvm::LLVMContext& context = *made.context;
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context),
                                       {llvm::PointerType::getUnqual(context)}, false);
  llvm::Function* function = make_function(*made.module, "kernel", type, spec.plan.target);
  Builder build(function, spec.plan.target, spec.plan.compute);

  BlockEmitter block(build, spec, function->getArg(0));
  block.multiply_queries();
  block.apply_mods();
  block.weigh();
  block.add_values();
  build.CreateRetVoid();
  return made;
}

}  // namespace treadle::emit
