// Captured reads in all their forms, of memory that ends where a page does: whatever reads too far,
// crashes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <deque>
#include <functional>
#include <iostream>

#include "agreement.h"
#include "base/element.h"
#include "fuzz.h"
#include "guarded.h"
#include "ir/parse.h"
#include "plan/mod_plan.h"

namespace treadle::test {
namespace {

using plan::ReadForm;

// Captures of any type, each at a guard page.
class Memory {
 public:
  explicit Memory(Guarded::At at) : at_(at) {}

  ConstView add(DType dtype, const Dims& shape, Dims strides = {}) {
    if (strides.empty()) strides = contiguous_strides(shape);
    std::int64_t low = 0, high = 0;  // of the elements, from that at index 0
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      const std::int64_t reach = (shape[axis] - 1) * strides[axis];
      (reach < 0 ? low : high) += reach;
    }
    const std::int64_t count = high - low + 1;
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    std::byte* data = memory_.emplace_back(static_cast<std::size_t>(count * size), at_).data();
    for (std::int64_t i = 0; i < count; ++i) {
      if (is_float(dtype)) {
        base::store_double(data, dtype, i, static_cast<double>(i * 37 % 251) / 8 - 9);
      } else if (dtype == DType::boolean) {
        // Any byte but 0 is true.
        data[i] = static_cast<std::byte>(i * 37 % 5 == 0 ? 0 : i % 255 + 1);
      } else {
        base::store_int(data, dtype, i, i * 37 % 113 - (dtype == DType::u8 ? 0 : 40));
      }
    }
    return {data - low * size, dtype, shape, strides};
  }

 private:
  Guarded::At at_;
  std::deque<Guarded> memory_;
};

// Reads a[...] for queries 5 .. n - 1 and keys 0 .. 36. Its shape and strides follow from n; no
// strides: contiguous.
struct Read {
  std::string text;
  std::function<Dims(int n)> shape;
  ReadForm form;
  std::function<Dims(int n)> strides = nullptr;
  bool consecutive = true;
  bool every_dtype = false;
};

std::ostream& operator<<(std::ostream& out, const Read& read) { return out << read.text; }

const std::vector<Read> reads{
    {"a", [](int) { return Dims{}; }, ReadForm::uniform},
    {"a[h]", [](int) { return Dims{3}; }, ReadForm::uniform},
    {"a[kv]", [](int) { return Dims{37}; }, ReadForm::uniform, {}, true, true},
    {"a[kv, h]", [](int) { return Dims{37, 3}; }, ReadForm::uniform,
     [](int) { return Dims{1, 37}; }},
    {"a[36 - kv]", [](int) { return Dims{37}; }, ReadForm::uniform, [](int) { return Dims{-1}; }},

    {"a[q]", [](int n) { return Dims{n}; }, ReadForm::lanes},
    {"a[kv, q]", [](int n) { return Dims{37, n}; }, ReadForm::lanes, {}, true, true},
    {"a[h, q + 36 - kv]", [](int n) { return Dims{3, n + 36}; }, ReadForm::lanes},

    {"a[kv - q + 80]",
     [](int) { return Dims{36 - 5 + 80 + 1}; },
     ReadForm::backwards,
     {},
     true,
     true},
    {"a[h, 90 - (q - kv)]", [](int) { return Dims{3, 90 + 36 - 5 + 1}; }, ReadForm::backwards},

    {"a[q, kv]", [](int n) { return Dims{n, 37}; }, ReadForm::staged, {}, true, true},
    {"a[h, q, kv]", [](int n) { return Dims{3, n, 37}; }, ReadForm::staged},
    {"a[q // 2, h + kv]", [](int n) { return Dims{(n - 1) / 2 + 1, 39}; }, ReadForm::staged},
    {"a[kv + q * 3]", [](int n) { return Dims{36 + (n - 1) * 3 + 1}; }, ReadForm::staged},
    {"a[q, kv]", [](int n) { return Dims{n, 37}; }, ReadForm::staged,
     [](int) { return Dims{-50, 1}; }},
    {"a[q, kv]", [](int n) { return Dims{n, 37}; }, ReadForm::staged, {}, false},

    {"a[q]", [](int n) { return Dims{n}; }, ReadForm::gather, {}, false, true},
    {"a[q]", [](int n) { return Dims{n}; }, ReadForm::gather, [](int) { return Dims{3}; }},
    {"a[q]", [](int n) { return Dims{n}; }, ReadForm::gather, [](int) { return Dims{-1}; }},
    {"a[q, kv]", [](int n) { return Dims{n, 37}; }, ReadForm::gather,
     [](int n) { return Dims{1, n}; }, true, true},
    {"a[q, kv]", [](int n) { return Dims{n, 37}; }, ReadForm::gather,
     [](int) { return Dims{-37, 0}; }},
    {"a[(q * 5 + kv) % 31]", [](int) { return Dims{31}; }, ReadForm::gather},
    {"a[kv * 2 + q, q]", [](int n) { return Dims{72 + n, n}; }, ReadForm::gather},
};

const std::vector<std::vector<std::int32_t>>& key_lists() {
  static const auto lists = [] {
    std::vector<std::int32_t> dense, gaps, late;
    for (int i = 0; i < 37; ++i) {
      dense.push_back(i);
      if (i < 20 || i % 3 == 0) gaps.push_back(i);
      if (i >= 30) late.push_back(i);
    }
    return std::vector{dense, gaps, late, {36}, {0}};
  }();
  return lists;
}

class ReadTest : public testing::TestWithParam<Read> {
 protected:
  // With these as keys reads may leave their buffers.
  static inline const std::vector<std::int32_t> beyond{0, 20, 36, 37, 38, 90};

  void check(DType dtype, const Setting& setting) {
    const bool checked = setting.facts.reads == plan::Reads::checked;
    const Read& read = GetParam();
    const auto rank = static_cast<int>(read.shape(6).size());
    const ir::Graph graph = ir::parse(read.text, std::vector<ir::Slot>{{"a", dtype, rank}});
    if (!checked) {
      ASSERT_EQ(plan::plan_mod(graph, setting.facts).read[graph.output()], read.form);
    }
    const Agreement agreement(graph, setting);
    const int lanes = setting.lanes();
    for (const int queries : {2 * lanes, 2 * lanes - 1, lanes + 1, lanes, 1}) {
      for (const auto at : {Guarded::At::end, Guarded::At::begin}) {
        Memory memory(at);
        const int n = 5 + queries;
        const std::vector<ConstView> views{
            memory.add(dtype, read.shape(n), read.strides ? read.strides(n) : Dims{})};
        Tile tile{.h = 2};
        for (int i = 0; i < queries; ++i) tile.q.push_back(5 + i);
        if (!read.consecutive) std::ranges::reverse(tile.q);
        for (const std::vector<std::int32_t>& keys : key_lists()) {
          tile.keys = keys;
          ASSERT_EQ(facts_of(graph, tile, views).reads, plan::Reads::proven)
              << "the test itself reads outside";
          agreement.expect(tile, views);
        }
        tile.keys = beyond;
        if (checked) agreement.expect(tile, views);
        if (HasFailure()) return;
      }
    }
  }
};

TEST_P(ReadTest, ReadsItsElementsAndNothingElse) {
  const Read& read = GetParam();
  const std::vector<DType> some{DType::f32, DType::i16};
  const std::vector<DType> all(base::all_dtypes.begin(), base::all_dtypes.end());
  const bool unit = read.shape(6).size() > 0 && (!read.strides || read.strides(6).back() == 1);
  std::cout << seed_text(fuzz_seed(0)) << '\n';
  SCOPED_TRACE(seed_text(fuzz_seed(0)));
  std::uint64_t number = 0, made = fuzz_seed(0);
  for (const DType dtype : read.every_dtype ? all : some) {
    for (const plan::Reads reads :
         {plan::Reads::proven, plan::Reads::clamped, plan::Reads::checked}) {
      for (const plan::Target& target : targets_in_turn(number++)) {
        Setting setting{.target = target, .vectors = 2};
        setting.compute = dtype == DType::i64 || dtype == DType::f64 ? DType::f64 : DType::f32;
        setting.real = setting.compute;
        setting.facts = {.narrow = dtype != DType::i32,
                         .reads = reads,
                         .consecutive = read.consecutive,
                         .unit_stride = {unit}};
        // Whole or in pieces, by turns.
        if (++made % 2 == 0) setting.pieces = {.whole = 0, .piece = 1};
        check(dtype, setting);
        if (HasFailure()) return;
      }
    }
  }
}

// An empty buffer has no element that could be read instead.
TEST(EmptyRead, OfAnEmptyBufferReadsNothing) {
  const Guarded nothing(0, Guarded::At::end);
  const Dims shapes[]{{0, 5}, {5, 0}, {0, 0}};
  for (const Dims& shape : shapes) {
    for (const DType dtype : {DType::f32, DType::i8}) {
      const std::vector<ConstView> views{ConstView(nothing.data(), dtype, shape)};
      for (const plan::Target& target : targets_here()) {
        for (const char* text : {"a[q, kv]", "a[kv, 0]", "a[h, b]", "a[q, q]"}) {
          const ir::Graph graph = ir::parse(text, std::vector<ir::Slot>{{"a", dtype, 2}});
          const Setting setting{.target = target, .facts = {.narrow = true, .unit_stride = {true}}};
          expect_agreement(graph, setting, {.q = {0, 1, 2}, .keys = {0, 1}}, views);
        }
      }
    }
  }
}

// "7_a_q_kv": several reads have the same text.
INSTANTIATE_TEST_SUITE_P(Reads, ReadTest, testing::ValuesIn(reads), [](const auto& info) {
  std::string name = std::to_string(info.index) + "_";
  for (const char letter : info.param.text) {
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0) {
      name += letter;
    } else if (name.back() != '_') {
      name += '_';
    }
  }
  return name;
});

}  // namespace
}  // namespace treadle::test
