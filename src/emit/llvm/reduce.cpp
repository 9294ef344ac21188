#include "emit/llvm/reduce.h"

#include <llvm/IR/Module.h>

#include <cstddef>

#include "emit/llvm/builder.h"
#include "emit/llvm/product.h"

namespace treadle::emit::llvm {
namespace {

class ReduceEmitter {
 public:
  ReduceEmitter(Builder& build, const plan::ReduceSpec& spec, Value* args)
      : build_(build), spec_(spec), args_(args) {}

  void run() {
    const std::int64_t step = std::int64_t{spec_.vectors()} * build_.lanes();
    const std::int64_t rest = spec_.length % step;
    const std::int64_t whole = spec_.length - rest;
    if (whole > 0) {
      build_.loop(build_.index(0), build_.index(whole), step,
                  [&](Value* d) { columns(d, spec_.vectors()); });
    }
    if (rest > 0) columns(build_.index(whole), static_cast<int>(rest / build_.lanes()));
  }

 private:
  Value* field(::llvm::Type* type, std::size_t offset) {
    return build_.CreateLoad(type, build_.element(build_.getInt8Ty(), args_,
                                                  build_.index(static_cast<std::int64_t>(offset))));
  }
  Value* element(Value* array, Value* at, std::int64_t scale) {
    return build_.element(build_.real(), array, build_.CreateNSWMul(at, build_.index(scale)));
  }

  // Some vectors of all rows, from element d on.
  void columns(Value* d, int vectors) {
    Value* a = field(build_.getPtrTy(), offsetof(plan::ReduceArgs, a));
    Value* b =
        build_.element(build_.real(), field(build_.getPtrTy(), offsetof(plan::ReduceArgs, b)), d);
    Value* c =
        build_.element(build_.real(), field(build_.getPtrTy(), offsetof(plan::ReduceArgs, c)), d);
    Value* tiles = field(build_.getInt64Ty(), offsetof(plan::ReduceArgs, tiles));
    const int rows = spec_.rows_at_once();
    build_.loop(build_.index(0), field(build_.getInt64Ty(), offsetof(plan::ReduceArgs, rows)), rows,
                [&](Value* k) {
                  Value* first = element(c, k, spec_.length);
                  const auto place = [&](int r, int v) {
                    return build_.element(build_.real(), first,
                                          build_.index(r * spec_.length + v * build_.lanes()));
                  };
                  Values sums;
                  for (int r = 0; r < rows; ++r)
                    for (int v = 0; v < vectors; ++v)
                      sums.push_back(build_.load(build_.reals(), place(r, v)));
                  Value* a_rows = element(a, k, spec_.width);
                  sums = build_.loop(
                      build_.index(0), tiles, 1, sums, [&](Value* t, const Values& now) {
                        return accumulate(build_,
                                          {.rows = rows,
                                           .vectors = vectors,
                                           .a = element(a_rows, t, spec_.a_rows * spec_.width),
                                           .a_row = spec_.width,
                                           .a_step = 1,
                                           .b = element(b, t, spec_.width * spec_.length),
                                           .b_step = spec_.length,
                                           .depth = build_.index(spec_.width)},
                                          now);
                      });
                  std::size_t next = 0;
                  for (int r = 0; r < rows; ++r)
                    for (int v = 0; v < vectors; ++v) build_.store(sums[next++], place(r, v));
                });
  }

  Builder& build_;
  const plan::ReduceSpec& spec_;
  Value* args_;
};

}  // namespace

Module emit_reduce(const plan::ReduceSpec& spec) {
  Module made = make_module("reduce", spec.target);
  ::llvm::LLVMContext& context = *made.context;
  auto* type = ::llvm::FunctionType::get(::llvm::Type::getVoidTy(context),
                                         {::llvm::PointerType::getUnqual(context)}, false);
  ::llvm::Function* function = make_function(*made.module, "kernel", type, spec.target);
  Builder build(function, spec.target, spec.compute);
  ReduceEmitter(build, spec, function->getArg(0)).run();
  build.CreateRetVoid();
  return made;
}

}  // namespace treadle::emit::llvm
