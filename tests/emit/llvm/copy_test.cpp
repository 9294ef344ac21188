// Rows copied between float types, and from 8-bit ones, in order or by lists of rows, against plain
// loops; memory ends at guards. On every target that runs here.
#include "emit/llvm/copy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/element.h"
#include "small_kernel.h"

namespace treadle::test {
namespace {

constexpr DType targets[]{DType::f64, DType::f32, DType::bf16, DType::f16};
constexpr DType sources[]{DType::f64,  DType::f32,  DType::bf16, DType::f16,
                          DType::e4m3, DType::e5m2, DType::i8};

// Rows `stride` bytes apart; the last one ends with its elements.
struct Rows {
  std::int64_t count, length, stride;
  DType type;
  Guarded memory;

  Rows(std::int64_t rows, std::int64_t elements, std::int64_t between, DType dtype, Guarded::At at)
      : count(rows),
        length(elements),
        stride((elements + between) * static_cast<std::int64_t>(size_of(dtype))),
        type(dtype),
        memory(bytes(), at) {
    std::memset(memory.data(), 0x3b, bytes());
  }

  [[nodiscard]] std::size_t bytes() const {
    if (count == 0) return 0;
    return static_cast<std::size_t>((count - 1) * stride) +
           static_cast<std::size_t>(length) * size_of(type);
  }
  [[nodiscard]] std::byte* row(std::int64_t i) const { return memory.data() + i * stride; }
};

void expect_copied(const plan::CopySpec& spec, std::int64_t between, bool listed, Guarded::At at) {
  const std::vector<std::int32_t> from{3, 0, 3, 5, 1}, to{1, 6, 0, 2, 4};
  const auto count = static_cast<std::int64_t>(from.size());
  const Rows source(listed ? 6 : count, spec.length, between, spec.from, at);
  const Rows target(listed ? 7 : count, spec.length, between, spec.to, at);
  for (std::int64_t i = 0; i < source.count; ++i)
    for (std::int64_t d = 0; d < spec.length; ++d)
      base::store_double(source.row(i), spec.from, d, 0.37 * static_cast<double>(i * 100 + d) - 9);
  std::vector<std::byte> want(target.bytes());
  std::memcpy(want.data(), target.memory.data(), want.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto number = static_cast<std::size_t>(i);
    const std::byte* source_row = source.row(listed ? from[number] : i);
    std::byte* target_row = want.data() + (listed ? to[number] : i) * target.stride;
    for (std::int64_t d = 0; d < spec.length; ++d)
      base::store_double(target_row, spec.to, d, base::load_double(source_row, spec.from, d));
  }
  small_engine().get(spec)({.source = source.memory.data(),
                            .source_stride = source.stride,
                            .source_index = listed ? from.data() : nullptr,
                            .target = target.memory.data(),
                            .target_stride = target.stride,
                            .target_index = listed ? to.data() : nullptr,
                            .count = count});
  EXPECT_EQ(std::memcmp(target.memory.data(), want.data(), want.size()), 0) << fmt::format(
      "{} to {} on {}, rows of {}, {} between{}", name_of(spec.from), name_of(spec.to),
      spec.target.name, spec.length, between, listed ? ", listed" : "");
}

class Copy : public testing::TestWithParam<plan::Target> {};
INSTANTIATE_TEST_SUITE_P(Targets, Copy, testing::ValuesIn(every_target()), name_of_target);

TEST_P(Copy, LikeAPlainLoop) {
  const std::int64_t lanes = GetParam().lanes(DType::f32);
  for (const DType from : sources) {
    for (const DType to : targets) {
      for (const std::int64_t length : {std::int64_t{1}, lanes - 1, lanes, 2 * lanes + 3}) {
        const plan::CopySpec spec{GetParam(), from, to, length};
        for (const std::int64_t between : {0, 3})
          for (const bool listed : {false, true})
            for (const auto at : {Guarded::At::end, Guarded::At::begin})
              expect_copied(spec, between, listed, at);
      }
    }
  }
}

// Rows of nothing, and no rows: no memory is needed.
TEST_P(Copy, OfNothing) {
  const Guarded nothing(0, Guarded::At::end);
  const plan::CopySpec spec{GetParam(), DType::bf16, DType::f32, 7};
  small_engine().get(spec)({.source = nothing.data(), .target = nothing.data(), .count = 0});
}

// An index list for one side only.
TEST_P(Copy, GathersOrScatters) {
  const std::vector<std::int32_t> list{2, 0, 1};
  const std::vector<float> source{1, 2, 3, 4, 5, 6};
  const plan::Kernel<plan::CopyArgs> copy =
      small_engine().get(plan::CopySpec{GetParam(), DType::f32, DType::f32, 2});
  plan::CopyArgs args{.source = source.data(), .source_stride = 8, .target_stride = 8, .count = 3};
  std::vector<float> gathered(6), scattered(6);
  args.target = gathered.data();
  args.source_index = list.data();
  copy(args);
  EXPECT_EQ(gathered, (std::vector<float>{5, 6, 1, 2, 3, 4}));
  args.target = scattered.data();
  args.source_index = nullptr;
  args.target_index = list.data();
  copy(args);
  EXPECT_EQ(scattered, (std::vector<float>{3, 4, 5, 6, 1, 2}));
}

}  // namespace
}  // namespace treadle::test
