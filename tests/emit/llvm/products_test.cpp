// Products against plain loops, bit for bit, with memory that ends at guards, on every target that
// runs here.
#include "emit/llvm/products.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "fuzz.h"
#include "small_kernel.h"

namespace treadle::test {
namespace {

using emit::llvm::Builder;
using emit::llvm::Value;

struct ProductArgs {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  std::int64_t keys = 0;
  void* largest = nullptr;  // [width]: what the epilogue saw
};

template <class F>
void fill(const GuardedArray<F>& array, std::mt19937_64& random) {
  for (F& x : array.span()) x = static_cast<F>(random_real(random, -2, 2));
}

// How many keys: fewer than are in registers at once, as many, more, and a whole block.
std::vector<std::int64_t> key_counts(const plan::TilePlan& plan) {
  std::vector<std::int64_t> counts{1, plan.rows, plan.rows + 1, 2 * plan.rows - 1, plan.key_block};
  if (plan.rows > 2) counts.push_back(plan.rows - 1);
  return counts;
}

std::string describe(const plan::TilePlan& plan, std::int64_t keys) {
  return fmt::format("{} {}, {} keys", plan.target.name, to_text(plan), keys);
}

// Everything a product reads and writes, each at a guard.
template <class F>
struct Operands {
  std::int64_t keys, dim, width;
  GuardedArray<F> a, b, c, largest;

  Operands(const plan::TilePlan& plan, std::int64_t n, std::int64_t b_rows, std::int64_t c_rows,
           Guarded::At at)
      : keys(n),
        dim(plan.dim),
        width(plan.width()),
        a(static_cast<std::size_t>(keys * dim), at),
        b(static_cast<std::size_t>(b_rows * width), at),
        c(static_cast<std::size_t>(c_rows * width), at),
        largest(static_cast<std::size_t>(width), at, -std::numeric_limits<F>::infinity()) {
    auto random = rng(static_cast<std::uint64_t>(keys * 100 + dim));
    fill(a, random);
    fill(b, random);
    fill(c, random);
  }

  [[nodiscard]] ProductArgs args() const {
    return {.a = a.data(), .b = b.data(), .c = c.data(), .keys = keys, .largest = largest.data()};
  }
};

plan::Kernel<ProductArgs> compile_product(
    const plan::TilePlan& plan, const std::function<void(emit::llvm::KernelFunction<ProductArgs>&,
                                                         const emit::llvm::TileProduct&)>& emit) {
  return compile_small<ProductArgs>(plan.target, plan.compute, [&](auto& kernel) {
    const auto& args = kernel.args();
    emit(kernel, {.a = args[&ProductArgs::a],
                  .b = args[&ProductArgs::b],
                  .c = args[&ProductArgs::c],
                  .keys = args[&ProductArgs::keys],
                  .dim = plan.dim});
  });
}

template <class F>
void expect_multiplied(const plan::TilePlan& plan) {
  const auto multiply = compile_product(plan, [&](auto& kernel, const auto& product) {
    Builder& build = kernel.build();
    emit::llvm::multiply(build, plan, product, [&](Value* result, int v) {
      Value* at =
          build.vector_at(kernel.args()[&ProductArgs::largest], build.index(0), plan.width(), v);
      build.store(build.larger(result, build.load(build.reals(), at)), at);
    });
  });
  for (const std::int64_t keys : key_counts(plan)) {
    for (const auto at : {Guarded::At::end, Guarded::At::begin}) {
      const Operands<F> x(plan, keys, plan.dim, keys, at);
      multiply(x.args());
      for (std::int64_t q = 0; q < x.width; ++q) {
        F largest = -std::numeric_limits<F>::infinity();
        for (std::int64_t k = 0; k < keys; ++k) {
          F sum = 0;
          for (std::int64_t d = 0; d < x.dim; ++d)
            sum = multiply_add(plan.target, x.a[k * x.dim + d], x.b[d * x.width + q], sum);
          ASSERT_EQ(x.c[k * x.width + q], sum) << describe(plan, keys);
          largest = std::max(largest, sum);
        }
        ASSERT_EQ(x.largest[q], largest) << describe(plan, keys);
      }
    }
  }
}

template <class F>
void expect_added(const plan::TilePlan& plan) {
  const auto add = compile_product(plan, [&](auto& kernel, const auto& product) {
    emit::llvm::add(kernel.build(), plan, product);
  });
  for (const std::int64_t keys : key_counts(plan)) {
    for (const auto at : {Guarded::At::end, Guarded::At::begin}) {
      const Operands<F> x(plan, keys, keys, plan.dim, at);
      const std::vector<F> before(x.c.span().begin(), x.c.span().end());
      add(x.args());
      for (std::int64_t d = 0; d < x.dim; ++d) {
        for (std::int64_t q = 0; q < x.width; ++q) {
          F sum = before[static_cast<std::size_t>(d * x.width + q)];
          for (std::int64_t k = 0; k < keys; ++k)
            sum = multiply_add(plan.target, x.a[k * x.dim + d], x.b[k * x.width + q], sum);
          ASSERT_EQ(x.c[d * x.width + q], sum) << describe(plan, keys);
        }
      }
    }
  }
}

// Hidden weights are -0; what their keys hold, infinities and NaN included, is not added.
template <class F>
void expect_hidden_skipped(const plan::TilePlan& plan) {
  const auto add = compile_product(plan, [&](auto& kernel, const auto& product) {
    emit::llvm::add(kernel.build(), plan, product, true);
  });
  const std::int64_t keys = plan.rows + 1;
  const Operands<F> x(plan, keys, keys, plan.dim, Guarded::At::end);
  const auto hidden = [&](std::int64_t k, std::int64_t q) { return (k + q) % 3 == 0 || k == 1; };
  for (std::int64_t k = 0; k < keys; ++k) {
    for (std::int64_t q = 0; q < x.width; ++q) {
      F& weight = x.b[k * x.width + q];
      weight = hidden(k, q) ? F{-0.0} : std::abs(weight);
    }
  }
  for (std::int64_t d = 0; d < x.dim; ++d) {
    x.a[1 * x.dim + d] =
        d % 2 == 0 ? std::numeric_limits<F>::infinity() : std::numeric_limits<F>::quiet_NaN();
  }
  const std::vector<F> before(x.c.span().begin(), x.c.span().end());
  add(x.args());
  for (std::int64_t d = 0; d < x.dim; ++d) {
    for (std::int64_t q = 0; q < x.width; ++q) {
      F sum = before[static_cast<std::size_t>(d * x.width + q)];
      for (std::int64_t k = 0; k < keys; ++k) {
        if (hidden(k, q)) continue;
        sum = multiply_add(plan.target, x.a[k * x.dim + d], x.b[k * x.width + q], sum);
      }
      ASSERT_EQ(x.c[d * x.width + q], sum) << describe(plan, keys);
    }
  }
}

class Products : public testing::TestWithParam<plan::Target> {
 protected:
  // Dims below, at and beside the steps of the loops.
  template <class Check32, class Check64>
  void for_plans(Check32 check_f32, Check64 check_f64) {
    for (int vectors = 1; vectors <= plan::most_vectors; ++vectors) {
      for (const std::int64_t dim : {1, 5, 24, 37}) {
        check_f32(plan::plan_tile(GetParam(), DType::f32, dim, dim, vectors));
        check_f64(plan::plan_tile(GetParam(), DType::f64, dim, dim, vectors));
        if (HasFatalFailure()) return;
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, Products, testing::ValuesIn(targets_here()), name_of_target);

TEST_P(Products, MultiplyIsAPlainLoopAndShowsEveryResult) {
  for_plans(expect_multiplied<float>, expect_multiplied<double>);
}

TEST_P(Products, AddIsAPlainLoop) { for_plans(expect_added<float>, expect_added<double>); }

TEST_P(Products, AddSkipsHiddenWeights) {
  for (const int vectors : {1, 2}) {
    expect_hidden_skipped<float>(plan::plan_tile(GetParam(), DType::f32, 37, 37, vectors));
    expect_hidden_skipped<double>(plan::plan_tile(GetParam(), DType::f64, 37, 37, vectors));
  }
}

template <class F>
void expect_reduced(const plan::Target& target, int vectors, std::int64_t length) {
  const plan::TilePlan tile = plan::plan_tile(target, dtype_of<F>, length, length, vectors);
  const plan::ReduceSpec spec = plan::plan_reduce(tile, length);
  const plan::Kernel<plan::ReduceArgs> reduce = small_engine().get(spec);
  for (const std::int64_t steps : {1, 2}) {
    const std::int64_t rows = steps * spec.rows_at_once();
    if (rows > spec.a_rows) continue;
    for (const std::int64_t tiles : {0, 1, 3}) {
      for (const auto at : {Guarded::At::end, Guarded::At::begin}) {
        const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
        const GuardedArray<F> a(size(tiles * spec.a_rows * spec.width), at),
            b(size(tiles * spec.width * spec.length), at), c(size(rows * spec.length), at);
        auto random = rng(9);
        fill(a, random);
        fill(b, random);
        fill(c, random);
        std::vector<F> want(c.span().begin(), c.span().end());
        for (std::int64_t k = 0; k < rows; ++k) {
          for (std::int64_t d = 0; d < spec.length; ++d) {
            F& sum = want[size(k * spec.length + d)];
            for (std::int64_t t = 0; t < tiles; ++t) {
              for (std::int64_t q = 0; q < spec.width; ++q) {
                sum = multiply_add(target, a[(t * spec.a_rows + k) * spec.width + q],
                                   b[(t * spec.width + q) * spec.length + d], sum);
              }
            }
          }
        }
        reduce({.a = a.data(), .b = b.data(), .c = c.data(), .rows = rows, .tiles = tiles});
        ASSERT_EQ(std::vector<F>(c.span().begin(), c.span().end()), want)
            << fmt::format("{} {}, width {}, length {}, {} rows, {} tiles", target.name,
                           name_of(dtype_of<F>), spec.width, spec.length, rows, tiles);
      }
    }
  }
}

TEST_P(Products, ReduceIsAPlainLoop) {
  for (int vectors = 1; vectors <= plan::most_vectors; ++vectors) {
    for (const std::int64_t length : {1, 40, 64}) {
      expect_reduced<float>(GetParam(), vectors, length);
      expect_reduced<double>(GetParam(), vectors, length);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace treadle::test
