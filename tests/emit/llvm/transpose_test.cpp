// Rows transposed to lanes and lanes to rows, against plain loops, on every target that runs here.
#include "emit/llvm/transpose.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "jit/engine.h"
#include "mod_runner.h"

namespace treadle::test {
namespace {

using plan::TransposeSpec;

std::string to_text(const TransposeSpec& spec) {
  return fmt::format("{} {} lanes of {}, width {}, length {}, {} between rows, to {}",
                     spec.target.name, spec.target.lanes(spec.compute), name_of(spec.compute),
                     spec.width, spec.length, spec.row, spec.to_rows ? "rows" : "lanes");
}

template <class F>
void expect_transposed(const TransposeSpec& spec) {
  static jit::Engine engine{jit::EngineOptions{}};
  const plan::Kernel<plan::TransposeArgs> transpose = engine.get(spec);
  const auto in_rows = [&](std::int64_t q, std::int64_t d) {
    return static_cast<std::size_t>(q * spec.row + d);
  };
  const auto in_lanes = [&](std::int64_t q, std::int64_t d) {
    return static_cast<std::size_t>(d * spec.width + q);
  };
  // Nothing is read or written behind the last row's own elements.
  const std::size_t rows = in_rows(spec.width - 1, spec.length);
  const auto lanes = static_cast<std::size_t>(spec.length * spec.width);
  const std::size_t source_size = spec.to_rows ? lanes : rows;
  const std::size_t target_size = spec.to_rows ? rows : lanes;
  constexpr F untouched = 777;
  constexpr std::size_t guard = 21;  // of no vector's alignment

  std::vector<F> source(source_size + 2 * guard, F{-5});
  for (std::size_t i = 0; i < source_size; ++i)
    source[guard + i] = static_cast<F>(static_cast<double>(i) + 0.5);
  std::vector<F> factors;
  for (std::int64_t q = 0; q < spec.width; ++q) factors.push_back(static_cast<F>(q % 7) - F{2});
  std::vector<F> target(target_size + 2 * guard, untouched);

  std::vector<F> expected = target;
  for (std::int64_t q = 0; q < spec.width; ++q) {
    for (std::int64_t d = 0; d < spec.length; ++d) {
      const std::size_t from = spec.to_rows ? in_lanes(q, d) : in_rows(q, d);
      const std::size_t to = spec.to_rows ? in_rows(q, d) : in_lanes(q, d);
      expected[guard + to] = source[guard + from] * factors[static_cast<std::size_t>(q)];
    }
  }
  const std::vector<F> source_before = source;
  const plan::TransposeArgs args{source.data() + guard, target.data() + guard, factors.data()};
  transpose(args);
  EXPECT_EQ(target, expected) << to_text(spec);
  EXPECT_EQ(source, source_before) << to_text(spec);
}

// Any element in turn, and any kind of number that is not finite.
template <class F>
void expect_reported(const TransposeSpec& spec) {
  static jit::Engine engine{jit::EngineOptions{}};
  const plan::Kernel<plan::TransposeArgs> transpose = engine.get(spec);
  std::vector<F> source(static_cast<std::size_t>(spec.length * spec.width), F{1});
  std::vector<F> target(static_cast<std::size_t>(spec.row * spec.width));
  const std::vector<F> factors(static_cast<std::size_t>(spec.width), F{2});
  std::int32_t nonfinite = 0;
  const plan::TransposeArgs args{source.data(), target.data(), factors.data(), &nonfinite};
  constexpr F most = std::numeric_limits<F>::max();
  for (const F number : {F{0}, -F{1}, most / 2, std::numeric_limits<F>::denorm_min()}) {
    source.back() = number;
    transpose(args);
    EXPECT_EQ(nonfinite, 0) << to_text(spec) << ": " << number;
  }
  source.back() = 1;
  constexpr F infinity = std::numeric_limits<F>::infinity();
  for (F& element : source) {
    for (const F number : {infinity, -infinity, std::numeric_limits<F>::quiet_NaN(), most}) {
      element = number;  // the largest one is infinite when it is multiplied
      nonfinite = 0;
      transpose(args);
      EXPECT_EQ(nonfinite, 1) << to_text(spec) << ": " << number << " at "
                              << &element - source.data();
    }
    element = 1;
  }
  nonfinite = 1;
  transpose(args);
  EXPECT_EQ(nonfinite, 1) << "is not set back";
}

class Transpose : public testing::TestWithParam<plan::Target> {};
INSTANTIATE_TEST_SUITE_P(Targets, Transpose, testing::ValuesIn(targets_here()), name_of_target);

TEST_P(Transpose, LikeAPlainLoop) {
  for (const DType compute : {DType::f32, DType::f64}) {
    const std::int64_t lanes = GetParam().lanes(compute);
    for (const std::int64_t vectors : {1, 3}) {
      // Less than a vector, whole vectors, and some over.
      for (const std::int64_t length : {std::int64_t{1}, lanes - 1, lanes, 2 * lanes + 1}) {
        for (const std::int64_t between : {std::int64_t{0}, std::int64_t{3}}) {
          for (const bool to_rows : {false, true}) {
            const TransposeSpec spec{.target = GetParam(),
                                     .compute = compute,
                                     .width = vectors * lanes,
                                     .length = length,
                                     .row = length + between,
                                     .to_rows = to_rows};
            compute == DType::f32 ? expect_transposed<float>(spec)
                                  : expect_transposed<double>(spec);
          }
        }
      }
    }
  }
}

TEST_P(Transpose, ToRowsReportsWhatIsNotFinite) {
  for (const DType compute : {DType::f32, DType::f64}) {
    const std::int64_t lanes = GetParam().lanes(compute);
    for (const std::int64_t length : {std::int64_t{1}, lanes, 2 * lanes + 1}) {
      const TransposeSpec spec{.target = GetParam(),
                               .compute = compute,
                               .width = 2 * lanes,
                               .length = length,
                               .row = length,
                               .to_rows = true};
      compute == DType::f32 ? expect_reported<float>(spec) : expect_reported<double>(spec);
    }
  }
}

TEST(TransposeKeys, DifferInEveryMember) {
  const TransposeSpec one{
      .target = plan::find_target("haswell"), .width = 16, .length = 5, .row = 8};
  std::vector<TransposeSpec> all(7, one);
  all[1].target = plan::find_target("x86-64");
  all[2].compute = DType::f64;
  all[3].width = 24;
  all[4].length = 6;
  all[5].row = 9;
  all[6].to_rows = true;
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(key(all[i]) == key(all[j])) << i << " " << j;
}

}  // namespace
}  // namespace treadle::test
