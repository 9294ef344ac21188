// Transposing kernels: squares of as many rows as a vector has lanes, then single columns.
//
// In: a spec. Out: a module whose function `kernel` moves rows to lanes or back. Read emit() first.
#include "emit/llvm/transpose.h"

#include <utility>

#include "emit/llvm/kernel_function.h"
#include "emit/llvm/transpose_vectors.h"

namespace treadle::emit::llvm {
namespace {

using plan::TransposeArgs;

class TransposeEmitter {
 public:
  explicit TransposeEmitter(const plan::TransposeSpec& spec)
      : spec_(spec),
        kernel_("transpose", spec.target, spec.compute),
        build_(kernel_.build()),
        source_(kernel_.args()[&TransposeArgs::source]),
        target_(kernel_.args()[&TransposeArgs::target]),
        factors_(kernel_.args()[&TransposeArgs::factors]) {}

  Module emit() && {
    const std::int64_t lanes = build_.lanes();
    const std::int64_t whole = spec_.length - spec_.length % lanes;
    const Values seen = build_.loop(
        build_.index(0), build_.index(spec_.width), lanes, {build_.numbers(0)},
        [&](Value* q, const Values& before) -> Values {
          Value* factor = build_.load(build_.reals(), build_.element(build_.real(), factors_, q));
          Values now = before;
          if (whole > 0) {
            now = build_.loop(build_.index(0), build_.index(whole), lanes, now,
                              [&](Value* d, const Values& zeros) -> Values {
                                return {square(q, d, factor, zeros.front())};
                              });
          }
          if (whole < spec_.length) {
            now = build_.loop(build_.index(whole), build_.index(spec_.length), 1, now,
                              [&](Value* d, const Values& zeros) -> Values {
                                return {column(q, d, factor, zeros.front())};
                              });
          }
          return now;
        });
    if (spec_.to_rows) report(seen.front());
    return std::move(kernel_).finish();
  }

 private:
  // Elements d and on of query q + i.
  Value* in_rows(Value* array, Value* q, int i, Value* d) {
    Value* row =
        build_.CreateNSWMul(build_.CreateNSWAdd(q, build_.index(i)), build_.index(spec_.row));
    return build_.element(build_.real(), array, build_.CreateNSWAdd(row, d));
  }
  // Element d + i of query q and those after it.
  Value* in_lanes(Value* array, Value* q, Value* d, int i) {
    Value* row =
        build_.CreateNSWMul(build_.CreateNSWAdd(d, build_.index(i)), build_.index(spec_.width));
    return build_.element(build_.real(), array, build_.CreateNSWAdd(row, q));
  }

  // Zeros stay zeros with elements that are finite, and become NaN with others.
  Value* look_at(Value* elements, Value* zeros) {
    return build_.fma(elements, build_.numbers(0), zeros);
  }

  void report(Value* zeros) {
    Value* nonfinite = kernel_.args()[&TransposeArgs::nonfinite];
    Value* found = build_.any(build_.CreateFCmpUNO(zeros, zeros));
    build_.when(
        build_.CreateAnd(found, build_.CreateIsNotNull(nonfinite)),
        [&] { build_.CreateStore(build_.getInt32(1), nonfinite); }, true);
  }

  // As many elements of as many queries as a vector has lanes.
  Value* square(Value* q, Value* d, Value* factor, Value* zeros) {
    Values vectors;
    for (int i = 0; i < build_.lanes(); ++i) {
      Value* from = spec_.to_rows ? in_lanes(source_, q, d, i) : in_rows(source_, q, i, d);
      Value* vector = build_.load(build_.reals(), from);
      if (spec_.to_rows) {
        vector = build_.CreateFMul(vector, factor);
        zeros = look_at(vector, zeros);
      }
      vectors.push_back(vector);
    }
    vectors = transpose_vectors(build_, vectors);
    for (int i = 0; i < build_.lanes(); ++i) {
      Value* vector = vectors[static_cast<std::size_t>(i)];
      if (!spec_.to_rows) vector = build_.CreateFMul(vector, factor);
      build_.store(vector, spec_.to_rows ? in_rows(target_, q, i, d) : in_lanes(target_, q, d, i));
    }
    return zeros;
  }

  // One element of as many queries as a vector has lanes.
  Value* column(Value* q, Value* d, Value* factor, Value* zeros) {
    Value* vector = ::llvm::PoisonValue::get(build_.reals());
    if (spec_.to_rows) {
      vector = build_.CreateFMul(build_.load(build_.reals(), in_lanes(source_, q, d, 0)), factor);
      for (int i = 0; i < build_.lanes(); ++i)
        build_.store(build_.CreateExtractElement(vector, build_.index(i)),
                     in_rows(target_, q, i, d));
      return look_at(vector, zeros);
    }
    for (int i = 0; i < build_.lanes(); ++i) {
      Value* element = build_.load(build_.real(), in_rows(source_, q, i, d));
      vector = build_.CreateInsertElement(vector, element, build_.index(i));
    }
    build_.store(build_.CreateFMul(vector, factor), in_lanes(target_, q, d, 0));
    return zeros;
  }

  const plan::TransposeSpec& spec_;
  KernelFunction<TransposeArgs> kernel_;
  Builder& build_;
  Value *source_, *target_, *factors_;
};

}  // namespace

Module emit_transpose(const plan::TransposeSpec& spec) { return TransposeEmitter(spec).emit(); }

}  // namespace treadle::emit::llvm
