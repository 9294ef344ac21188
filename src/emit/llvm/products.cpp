// Products blocked for vector registers: loops around the micro-kernel.
//
// In: addresses of A, B and C. Out: loops that store C. Read multiply_rows() first.
#include "emit/llvm/products.h"

#include <algorithm>
#include <utility>

#include "emit/llvm/micro_kernel.h"

namespace treadle::emit::llvm {
namespace {

MicroKernel::Hidden hidden_in(bool skip_hidden, MicroKernel::Hidden where) {
  return skip_hidden ? where : MicroKernel::Hidden::none;
}

// Element at * scale of an array.
Value* scaled(Builder& build, Value* array, Value* at, std::int64_t scale) {
  return build.element(build.real(), array, build.CreateNSWMul(at, build.index(scale)));
}

// Rows `first` .. first + rows of C = A B.
void multiply_rows(Builder& build, const plan::TilePlan& plan, const TileProduct& product,
                   Value* first, int rows, const Epilogue& epilogue) {
  const MicroKernel kernel{.rows = rows,
                           .vectors = plan.vectors,
                           .a = build.element(build.real(), product.a,
                                              build.CreateNSWMul(first, build.index(product.dim))),
                           .a_row = product.dim,
                           .a_step = 1,
                           .b = product.b,
                           .b_step = plan.width(),
                           .depth = build.index(product.dim),
                           .meanwhile = product.meanwhile};
  const Values zeros(static_cast<std::size_t>(rows * plan.vectors), build.numbers(0));
  const Values c = accumulate(build, kernel, zeros);
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < plan.vectors; ++v) {
      Value* result = c[kernel.position(r, v)];
      Value* row = build.CreateNSWAdd(first, build.index(r));
      build.store(result, build.vector_at(product.c, row, plan.width(), v));
      if (epilogue) epilogue(result, v);
    }
  }
}

// Rows `first` .. first + rows of C += A^T B.
void add_rows(Builder& build, const plan::TilePlan& plan, const TileProduct& product, Value* first,
              int rows, bool skip_hidden) {
  const auto address = [&](int r, int v) {
    Value* row = build.CreateNSWAdd(first, build.index(r));
    return build.vector_at(product.c, row, plan.width(), v);
  };
  Values c;
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < plan.vectors; ++v) c.push_back(build.load(build.reals(), address(r, v)));
  const MicroKernel kernel{.rows = rows,
                           .vectors = plan.vectors,
                           .a = build.element(build.real(), product.a, first),
                           .a_row = 1,
                           .a_step = product.dim,
                           .b = product.b,
                           .b_step = plan.width(),
                           .depth = product.keys,
                           .hidden = hidden_in(skip_hidden, MicroKernel::Hidden::in_b),
                           .meanwhile = product.meanwhile};
  c = accumulate(build, kernel, std::move(c));
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < plan.vectors; ++v) build.store(c[kernel.position(r, v)], address(r, v));
}

// Rows `first` .. first + rows of C, which stay in registers beside the sums of a chunk.
void add_rows_of_chunks(Builder& build, const plan::TilePlan& plan, const TileProduct& product,
                        Value* ends, Value* chunks, Value* first, int rows) {
  const auto address = [&](int r, int v) {
    Value* row = build.CreateNSWAdd(first, build.index(r));
    return build.vector_at(product.c, row, plan.width(), v);
  };
  Values carried{build.index(0)};  // where the chunk begins, and C
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < plan.vectors; ++v)
      carried.push_back(build.load(build.reals(), address(r, v)));
  Value* a = build.element(build.real(), product.a, first);
  carried = build.loop(build.index(0), chunks, 1, carried, [&](Value* i, const Values& so_far) {
    ::llvm::Type* int32 = build.getInt32Ty();
    Value* begin = so_far.front();
    Value* end = build.CreateSExt(build.CreateLoad(int32, build.element(int32, ends, i)),
                                  build.getInt64Ty());
    const MicroKernel kernel{.rows = rows,
                             .vectors = plan.vectors,
                             .a = scaled(build, a, begin, product.dim),
                             .a_row = 1,
                             .a_step = product.dim,
                             .b = scaled(build, product.b, begin, plan.width()),
                             .b_step = plan.width(),
                             .depth = build.CreateNSWSub(end, begin),
                             .meanwhile = product.meanwhile};
    const Values sums = accumulate(build, kernel, Values(so_far.size() - 1, build.numbers(0)));
    Values next{end};
    for (std::size_t n = 0; n < sums.size(); ++n)
      next.push_back(build.CreateFAdd(so_far[n + 1], sums[n]));
    return next;
  });
  std::size_t next = 1;
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < plan.vectors; ++v) build.store(carried[next++], address(r, v));
}

// `vectors` vectors of all rows of C, from element d on.
void reduce_columns(Builder& build, const plan::ReduceSpec& spec,
                    const Arguments<plan::ReduceArgs>& args, Value* d, int vectors) {
  Value* a = args[&plan::ReduceArgs::a];
  Value* b = build.element(build.real(), args[&plan::ReduceArgs::b], d);
  Value* c = build.element(build.real(), args[&plan::ReduceArgs::c], d);
  Value* tiles = args[&plan::ReduceArgs::tiles];
  const int rows = spec.rows_at_once();
  build.loop(build.index(0), args[&plan::ReduceArgs::rows], rows, [&](Value* k) {
    Value* first = scaled(build, c, k, spec.length);
    const auto address = [&](int r, int v) {
      return build.element(build.real(), first, build.index(r * spec.length + v * build.lanes()));
    };
    Values sums;
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < vectors; ++v) sums.push_back(build.load(build.reals(), address(r, v)));
    Value* a_rows = scaled(build, a, k, spec.width);
    sums = build.loop(build.index(0), tiles, 1, sums, [&](Value* t, const Values& so_far) {
      const MicroKernel kernel{.rows = rows,
                               .vectors = vectors,
                               .a = scaled(build, a_rows, t, spec.a_rows * spec.width),
                               .a_row = spec.width,
                               .a_step = 1,
                               .b = scaled(build, b, t, spec.width * spec.length),
                               .b_step = spec.length,
                               .depth = build.index(spec.width),
                               .hidden = hidden_in(spec.skip_hidden, MicroKernel::Hidden::in_a)};
      return accumulate(build, kernel, so_far);
    });
    std::size_t next = 0;
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < vectors; ++v) build.store(sums[next++], address(r, v));
  });
}

}  // namespace

void multiply(Builder& build, const plan::TilePlan& plan, const TileProduct& product,
              const Epilogue& epilogue) {
  Value* keys = product.keys;
  // Keys begin .. end in groups of so many. One that would reach beyond the last key begins earlier
  // and repeats some of them: the same products.
  const auto groups = [&](Value* begin, Value* end, int rows) {
    Value* last = build.CreateNSWSub(keys, build.index(rows));
    build.loop(begin, end, rows, [&](Value* k) {
      Value* first = build.CreateBinaryIntrinsic(::llvm::Intrinsic::smin, k, last);
      multiply_rows(build, plan, product, first, rows, epilogue);
    });
  };
  const auto fewer_than = [&](int rows) { return build.CreateICmpSLT(keys, build.index(rows)); };
  Value* none = build.index(0);
  const int few = plan.sparse ? std::min(plan.rows, plan::few_keys) : plan.rows;
  Value* whole = keys;  // how many come in groups of plan.rows
  if (plan.rows > few) {
    Value* rest = build.CreateURem(keys, build.index(plan.rows));
    Value* is_small = build.CreateICmpULE(rest, build.index(plan::most_in_few(plan)));
    whole = build.CreateNSWSub(keys, build.CreateSelect(is_small, rest, none));
  }
  groups(none, build.CreateSelect(fewer_than(plan.rows), none, whole), plan.rows);
  if (plan.rows > few) {
    Value* begin = build.CreateSelect(fewer_than(plan.rows), none, whole);
    groups(begin, build.CreateSelect(fewer_than(few), begin, keys), few);
  }
  // Single keys wait for one another's sums.
  if (few > 1) build.when(fewer_than(few), [&] { groups(none, keys, 1); });
}

void add(Builder& build, const plan::TilePlan& plan, const TileProduct& product, bool skip_hidden) {
  const std::int64_t rest = product.dim % plan.rows;
  const std::int64_t whole = product.dim - rest;
  if (whole > 0) {
    build.loop(build.index(0), build.index(whole), plan.rows,
               [&](Value* d) { add_rows(build, plan, product, d, plan.rows, skip_hidden); });
  }
  if (rest > 0)
    add_rows(build, plan, product, build.index(whole), static_cast<int>(rest), skip_hidden);
}

void add_chunks(Builder& build, const plan::TilePlan& plan, const TileProduct& product, Value* ends,
                Value* chunks) {
  const int rows = std::max(1, plan.rows / 2);
  const std::int64_t rest = product.dim % rows;
  const std::int64_t whole = product.dim - rest;
  const auto add_some = [&](Value* d, int count) {
    add_rows_of_chunks(build, plan, product, ends, chunks, d, count);
  };
  if (whole > 0)
    build.loop(build.index(0), build.index(whole), rows, [&](Value* d) { add_some(d, rows); });
  if (rest > 0) add_some(build.index(whole), static_cast<int>(rest));
}

void reduce(Builder& build, const plan::ReduceSpec& spec, const Arguments<plan::ReduceArgs>& args) {
  const std::int64_t step = std::int64_t{spec.vectors()} * build.lanes();
  const std::int64_t rest = spec.length % step;
  const std::int64_t whole = spec.length - rest;
  if (whole > 0) {
    build.loop(build.index(0), build.index(whole), step,
               [&](Value* d) { reduce_columns(build, spec, args, d, spec.vectors()); });
  }
  if (rest > 0) {
    const auto vectors = static_cast<int>(rest / build.lanes());
    reduce_columns(build, spec, args, build.index(whole), vectors);
  }
}

}  // namespace treadle::emit::llvm
