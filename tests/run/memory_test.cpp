// Not one byte beside what was given is touched: every tensor ends, or begins, at a page that must
// not be.
#include <gtest/gtest.h>

#include <cstring>
#include <list>

#include "base/copy.h"
#include "forward_run.h"
#include "fuzz.h"
#include "guarded.h"
#include "printers.h"
#include "random_graph.h"

namespace treadle {
namespace {

using test::chance;
using test::ForwardRun;
using test::Guarded;
using test::mods_of;
using test::Random;
using test::random_int;
using test::Rows;

// Tensors at guards, freed together.
class Guards {
 public:
  explicit Guards(Guarded::At at) : at_(at) {}

  // With these strides; the lowest or the highest element lies at the guard.
  View place(DType dtype, const Dims& shape, const Dims& strides) {
    std::int64_t low = 0;
    std::int64_t high = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const std::int64_t reach = (std::max<std::int64_t>(shape[i], 1) - 1) * strides[i];
      low += std::min<std::int64_t>(reach, 0);
      high += std::max<std::int64_t>(reach, 0);
    }
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    const std::int64_t bytes = count_of(shape) == 0 ? 0 : (high - low + 1) * size;
    memory_.emplace_back(static_cast<std::size_t>(bytes), at_);
    return {memory_.back().data() - low * size, dtype, shape, strides};
  }
  View place(DType dtype, const Dims& shape) {
    return place(dtype, shape, contiguous_strides(shape));
  }
  View copy(const Tensor& tensor, const Dims& strides) {
    const View view = place(tensor.dtype(), tensor.shape(), strides);
    base::copy(view, tensor);
    return view;
  }
  View copy(const Tensor& tensor) { return copy(tensor, contiguous_strides(tensor.shape())); }

 private:
  Guarded::At at_;
  std::list<Guarded> memory_;
};

// Strides of [b, h, s, d] of one of the kinds that are read in different ways.
Dims strides_of(int kind, const Dims& n) {
  switch (kind) {
    case 0: return contiguous_strides(n);                                       // in place
    case 1: return {n[2] * n[1] * n[3], n[3], n[1] * n[3], 1};                  // rows apart
    case 2: return {n[1] * n[2] * (n[3] + 3), n[2] * (n[3] + 3), n[3] + 3, 1};  // gaps
    case 3: return {n[1] * n[2] * n[3], n[2] * n[3], -n[3], 1};                 // backwards
    case 4: return {-n[1] * n[2] * n[3] * 2, n[2] * n[3] * 2, n[3] * 2, 2};     // every second
    default: return {n[1] * n[2] * n[3], n[2] * n[3], 1, n[2]};                 // transposed
  }
}

struct MemorySpec {
  std::int64_t batch, heads, key_heads, queries, keys, dim, value_dim;
  DType type;
};

// Runs with everything at a guard and compares with the same in ordinary memory.
void expect_inside(const MemorySpec& s, int q_kind, int kv_kind, const ScoreMod& score_mod,
                   const MaskMod& mask) {
  const Tensor q = test::random_tensor(1, s.type, {s.batch, s.heads, s.queries, s.dim});
  const Tensor k = test::random_tensor(2, s.type, {s.batch, s.key_heads, s.keys, s.dim});
  const Tensor v = test::random_tensor(3, s.type, {s.batch, s.key_heads, s.keys, s.value_dim});
  const ForwardRun run(mods_of(score_mod, mask));
  const layout::Layout layout =
      run.build({s.batch, s.heads, s.queries, s.keys}, {}, 3 * run.target().lanes(DType::f32));
  const Rows expected = run({q, k, v}, 0.5, layout, *serial_executor());
  for (const Guarded::At at : {Guarded::At::end, Guarded::At::begin}) {
    Guards guards(at);
    const ConstView gq = guards.copy(q, strides_of(q_kind, q.shape()));
    const ConstView gk = guards.copy(k, strides_of(kv_kind, k.shape()));
    const ConstView gv = guards.copy(v, strides_of(kv_kind, v.shape()));
    const View out =
        guards.place(s.type, expected.out.shape(), strides_of(q_kind, expected.out.shape()));
    const View lse = guards.place(expected.lse.dtype(), expected.lse.shape());
    const View max = guards.place(expected.max.dtype(), expected.max.shape());
    run.into({out, lse, max}, {gq, gk, gv}, 0.5, layout, *tbb_executor(2));
    const Rows got{base::convert(out, out.dtype()), base::convert(lse, lse.dtype()),
                   base::convert(max, max.dtype())};
    EXPECT_TRUE(same_rows(got, expected))
        << to_string(q.shape()) << to_string(k.shape()) << q_kind << kv_kind;
  }
}

class Memory : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, Memory,
                         testing::Values(DType::f32, DType::f64, DType::bf16, DType::f16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(Memory, OfAnyStrides) {
  for (int q_kind = 0; q_kind < 6; ++q_kind) {
    for (int kv_kind = 0; kv_kind < 6; ++kv_kind) {
      expect_inside({2, 4, 2, 29, 37, 5, 7, GetParam()}, q_kind, kv_kind, {}, mods::causal());
    }
  }
}

TEST_P(Memory, OfAnyDims) {
  for (const std::int64_t dim : {1, 2, 3, 8, 13, 16, 31, 33, 64}) {
    for (const std::int64_t value_dim : {dim, std::int64_t{1}, dim + 1}) {
      expect_inside({1, 2, 1, 9, 70, dim, value_dim, GetParam()}, 0, 0, {}, {});
    }
    expect_inside({1, 2, 1, 9, 70, dim, dim, GetParam()}, 1, 2, {}, mods::window(3));
  }
}

TEST_P(Memory, OfAnyLengths) {
  for (const std::int64_t queries : {1, 2, 7, 8, 9, 24, 25, 49, 100}) {
    for (const std::int64_t keys : {0, 1, 3, 15, 16, 17, 64, 65, 129, 300}) {
      expect_inside({1, 1, 1, queries, keys, 6, 6, GetParam()}, 0, 0, {}, mods::dilated(4));
    }
  }
}

// The value at which reads along kv, q, q - kv and q + kv begin and end.
TEST_P(Memory, OfCaptures) {
  const std::int64_t queries = 45;
  const std::int64_t keys = 83;
  const Tensor rows = test::random_tensor(4, GetParam(), {queries});
  const Tensor columns = test::random_tensor(5, GetParam(), {keys});
  const Tensor pairs = test::random_tensor(6, GetParam(), {2, queries, keys});
  const Tensor steps = test::random_tensor(7, GetParam(), {queries + keys - 1});
  const Tensor heads = test::random_tensor(8, GetParam(), {2, 2});
  Tensor ids(DType::i32, {keys});
  for (std::int64_t i = 0; i < keys; ++i)
    ids.at<std::int32_t>({i}) = static_cast<std::int32_t>(i / 20);
  for (const Guarded::At at : {Guarded::At::end, Guarded::At::begin}) {
    Guards guards(at);
    const Capture a("rows", guards.copy(rows)), b("columns", guards.copy(columns)),
        c("pairs", guards.copy(pairs)), d("steps", guards.copy(steps)),
        e("heads", guards.copy(heads)), f("ids", guards.copy(ids)),
        across("across", guards.copy(pairs, {queries * keys, 1, queries})),
        last("last", guards.copy(columns, {-1})), apart("apart", guards.copy(columns, {3}));
    const std::vector<ScoreMod> mods{
        [=](Score s, Index, Index, Index q, Index) { return s + a(q); },
        [=](Score s, Index, Index, Index, Index kv) { return s + b(kv); },
        [=](Score s, Index, Index h, Index q, Index kv) { return s + c(h, q, kv); },
        [=](Score s, Index, Index h, Index q, Index kv) { return s + across(h, q, kv); },
        [=](Score s, Index, Index, Index q, Index kv) { return s + d(q - kv + (keys - 1)); },
        [=](Score s, Index, Index, Index q, Index kv) { return s * d(kv - q + (queries - 1)); },
        [=](Score s, Index, Index, Index q, Index kv) { return s - d(q + kv); },
        [=](Score s, Index i, Index h, Index, Index) { return s + e(i, h); },
        [=](Score s, Index, Index, Index, Index kv) { return s + last(kv) * apart(kv); },
        // Indices that are checked: clamped, never followed outside.
        [=](Score s, Index, Index, Index q, Index kv) {
          return where(kv < 10, s + b(kv + q % 2), s + a(min(q + kv % 2, 44)));
        }};
    for (const ScoreMod& mod : mods) {
      expect_inside({2, 2, 1, queries, keys, 4, 4, DType::f32}, 0, 0, mod, {});
      expect_inside({2, 2, 1, queries, keys, 4, 4, DType::f32}, 0, 1, mod,
                    [=](Index, Index, Index q, Index kv) { return f(q) == f(kv); });
    }
  }
}

// What the layout says is outside the mask's reach may be outside of a capture: it is not read.
TEST(MemorySafety, CapturesAsLongAsTheLayoutNeeds) {
  for (const Guarded::At at : {Guarded::At::end, Guarded::At::begin}) {
    Guards guards(at);
    const Tensor table = test::random_tensor(1, DType::f32, {50});
    const Capture c("table", guards.copy(table));
    expect_inside(
        {1, 1, 1, 90, 90, 4, 4, DType::f32}, 0, 0,
        [=](Score s, Index, Index, Index q, Index kv) { return s + c(q - kv); },
        mods::causal() & mods::window(50));
    expect_inside(
        {1, 1, 1, 50, 90, 4, 4, DType::f32}, 0, 0,
        [=](Score s, Index, Index, Index, Index kv) { return s + c(kv); }, parse("kv < 50"));
  }
}

// Elements between those of a result keep what they held.
TEST(MemorySafety, NothingBetweenTheElementsOfAResultIsWritten) {
  Random random = test::rng(1);
  const Tensor q = test::random_tensor(1, DType::f32, {2, 3, 19, 5});
  const ForwardRun run(mods_of({}, mods::causal()));
  const layout::Layout layout = run.build({2, 3, 19, 19}, {}, 24);
  const Rows expected = run({q, q, q}, 0.5, layout, *serial_executor());
  for (int i = 0; i < 20; ++i) {
    const std::int64_t inner = i % 4 == 3 ? 2 : 1;
    const std::int64_t row = 5 * inner + random_int(random, 0, 4);
    const std::int64_t head = 19 * row + random_int(random, 0, 4);
    const std::int64_t batch = 3 * head + random_int(random, 0, 4);
    Tensor memory(DType::f32, {2 * batch});
    for (float& x : memory.data<float>()) x = 77;
    const View out(memory.view().data(), DType::f32, {2, 3, 19, 5}, {batch, head, row, inner});
    Tensor lse(DType::f32, {2, 3, 19, 3}), max(DType::f32, {2, 3, 19, 3});
    for (float& x : lse.data<float>()) x = 55;
    const Dims strides{3 * 19 * 3, 19 * 3, 3};
    run.into({out, View(lse.view().data(), DType::f32, {2, 3, 19}, strides),
              View(max.view().data(), DType::f32, {2, 3, 19}, strides)},
             {q, q, q}, 0.5, layout, *serial_executor());
    EXPECT_TRUE(test::same_bits(base::convert(out, DType::f32), expected.out));
    std::int64_t kept = 0;
    for (const float x : memory.data<float>()) kept += x == 77 ? 1 : 0;
    EXPECT_EQ(kept, 2 * batch - 2 * 3 * 19 * 5);
    for (std::int64_t at = 0; at < lse.count(); ++at) {
      const float x = lse.data<float>()[static_cast<std::size_t>(at)];
      EXPECT_EQ(x == 55, at % 3 != 0);
    }
  }
}

}  // namespace
}  // namespace treadle
