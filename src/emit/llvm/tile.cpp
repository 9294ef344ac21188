#include "emit/llvm/tile.h"

#include <numbers>

#include "emit/llvm/product.h"

namespace treadle::emit::llvm {

TileEmitter::TileEmitter(Builder& build, const plan::TilePlan& plan, Value* args)
    : build_(build), plan_(plan), args_(args), count_(word(offsetof(plan::TileArgs, count))) {}

Value* TileEmitter::at(Value* array, Value* row, int v) {
  Value* element = build_.CreateNSWAdd(build_.CreateNSWMul(row, build_.index(plan_.width())),
                                       build_.index(v * build_.lanes()));
  return build_.element(build_.real(), array, element);
}

void TileEmitter::multiply_rows(Value* a, std::int64_t dim, Value* b, Value* to, Value* first,
                                int rows, const Each& each) {
  const Product product{
      .rows = rows,
      .vectors = plan_.vectors,
      .a = build_.element(build_.real(), a, build_.CreateNSWMul(first, build_.index(dim))),
      .a_row = dim,
      .a_step = 1,
      .b = b,
      .b_step = plan_.width(),
      .depth = build_.index(dim)};
  const Values zeros(static_cast<std::size_t>(rows * plan_.vectors), build_.numbers(0));
  const Values products = accumulate(build_, product, zeros);
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < plan_.vectors; ++v) {
      Value* value = products[product.place(r, v)];
      build_.store(value, at(to, build_.CreateNSWAdd(first, build_.index(r)), v));
      if (each) each(value, v);
    }
  }
}

void TileEmitter::multiply(Value* a, std::int64_t dim, Value* b, Value* to, const Each& each) {
  // A last, shorter group begins earlier and does some keys again: the same products.
  Value* rows = build_.index(plan_.rows);
  build_.when(build_.CreateICmpSGE(count_, rows), [&] {
    Value* last = build_.CreateNSWSub(count_, rows);
    build_.loop(build_.index(0), count_, plan_.rows, [&](Value* k) {
      Value* first = build_.CreateBinaryIntrinsic(::llvm::Intrinsic::smin, k, last);
      multiply_rows(a, dim, b, to, first, plan_.rows, each);
    });
  });
  if (plan_.rows == 1) return;
  build_.when(build_.CreateICmpSLT(count_, rows), [&] {
    build_.loop(build_.index(0), count_, 1,
                [&](Value* k) { multiply_rows(a, dim, b, to, k, 1, each); });
  });
}

void TileEmitter::add(Value* a, std::int64_t dim, Value* weights, Value* sums, bool skip_hidden) {
  const auto add_rows = [&](Value* first, int rows) {
    Values c;
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < plan_.vectors; ++v) {
        Value* address = at(sums, build_.CreateNSWAdd(first, build_.index(r)), v);
        c.push_back(build_.load(build_.reals(), address));
      }
    }
    const Product product{.rows = rows,
                          .vectors = plan_.vectors,
                          .a = build_.element(build_.real(), a, first),
                          .a_row = 1,
                          .a_step = dim,
                          .b = weights,
                          .b_step = plan_.width(),
                          .depth = count_,
                          .skip_hidden = skip_hidden};
    c = accumulate(build_, product, std::move(c));
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < plan_.vectors; ++v) {
        build_.store(c[product.place(r, v)],
                     at(sums, build_.CreateNSWAdd(first, build_.index(r)), v));
      }
    }
  };
  const std::int64_t rest = dim % plan_.rows;
  const std::int64_t whole = dim - rest;
  if (whole > 0) {
    build_.loop(build_.index(0), build_.index(whole), plan_.rows,
                [&](Value* d) { add_rows(d, plan_.rows); });
  }
  if (rest > 0) add_rows(build_.index(whole), static_cast<int>(rest));
}

std::unique_ptr<ModEmitter> TileEmitter::prepare(const ir::Graph& graph,
                                                 const plan::ModFacts& facts, DType real,
                                                 std::size_t captures) {
  auto mod = std::make_unique<ModEmitter>(
      build_, plan::plan_mod(graph, facts),
      ModOptions{.real = real, .captures = pointer(captures), .vectors = plan_.vectors});
  const auto narrow = [&](std::size_t offset) {
    return build_.CreateTrunc(word(offset), build_.getInt32Ty());
  };
  mod->head(narrow(offsetof(plan::TileArgs, b)), narrow(offsetof(plan::TileArgs, h)));
  Values q, active;
  ::llvm::VectorType* integers = build_.vector(build_.getInt32Ty());
  Value* rows = pointer(offsetof(plan::TileArgs, positions));
  for (int v = 0; v < plan_.vectors; ++v) {
    Value* address = build_.element(build_.getInt32Ty(), rows, build_.index(v * build_.lanes()));
    q.push_back(build_.load(integers, address));
    std::vector<::llvm::Constant*> lane;
    for (int i = 0; i < build_.lanes(); ++i)
      lane.push_back(build_.getInt32(static_cast<std::uint32_t>(v * build_.lanes() + i)));
    active.push_back(build_.CreateICmpSLT(::llvm::ConstantVector::get(lane),
                                          build_.splat(narrow(offsetof(plan::TileArgs, active)))));
  }
  mod->queries(q, active);
  if (mod->staged() > 0) {
    const auto bytes =
        static_cast<std::uint64_t>(mod->staged() * plan_.key_block * plan_.width() * 8);
    ::llvm::IRBuilder<> entry(&*build_.GetInsertBlock()->getParent()->getEntryBlock().begin());
    auto* room = entry.CreateAlloca(build_.getInt8Ty(), build_.getInt64(bytes));
    room->setAlignment(::llvm::Align(64));
    mod->stage(pointer(offsetof(plan::TileArgs, key_positions)), count_, plan_.key_block, room);
  }
  return mod;
}

Value* TileEmitter::modified(ModEmitter& mod, plan::ScoreForm::Kind kind, int v, Value* score,
                             Value*& poison) {
  Value* log2e = build_.number(std::numbers::log2e);
  const bool added = kind == plan::ScoreForm::Kind::added;
  const ModEmitter::Result result = mod.pair(v, added ? nullptr : score).front();
  if (result.poison != nullptr) poison = build_.splat(result.poison);
  if (!result.value->getType()->isVectorTy() && added)  // one multiplication for all lanes
    return build_.CreateFAdd(score, build_.splat(build_.CreateFMul(result.value, log2e)));
  Value* value = build_.splat(result.value);
  return added ? build_.fma(value, build_.splat(log2e), score)
               : build_.CreateFMul(value, build_.splat(log2e));
}

void TileEmitter::for_keys(const std::function<void(Value*, Value*)>& body) {
  Value* indices = pointer(offsetof(plan::TileArgs, key_positions));
  build_.loop(build_.index(0), count_, 1, [&](Value* i) {
    body(i,
         build_.CreateLoad(build_.getInt32Ty(), build_.element(build_.getInt32Ty(), indices, i)));
  });
}

void TileEmitter::report(Value* poison) {
  build_.when(
      any(poison),
      [&] { build_.CreateStore(build_.getInt64(1), pointer(offsetof(plan::TileArgs, poisoned))); },
      true);
}

Value* TileEmitter::any(Value* truth) {
  const auto lanes = static_cast<unsigned>(build_.lanes());
  return build_.CreateICmpNE(build_.CreateBitCast(truth, build_.getIntNTy(lanes)),
                             build_.getIntN(lanes, 0));
}

}  // namespace treadle::emit::llvm
