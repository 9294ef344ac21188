// Rows and positions apart: some queries or keys of a longer sequence, and keys in pieces, give the
// bits of the whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "direct_run.h"
#include "plain_attention.h"

namespace treadle {
namespace {

using layout::Range;
using test::DirectRun;
using test::random_tensor;
using test::Rows;

constexpr std::int64_t dim = 16, value_dim = 12;

Options biased_window() {
  Options options;
  options.score_mod = [](Score s, Index, Index h, Index q, Index kv) {
    return s + 0.01 * (h + 1) * (kv - q);
  };
  options.mask = [](Index, Index, Index q, Index kv) { return q >= kv && (q - kv) % 200 < 150; };
  return options;
}

// Rows begin .. end of axis 2.
Tensor part(const Tensor& tensor, Range rows) {
  Dims shape = tensor.shape();
  shape[2] = rows.count();
  const ConstView view = tensor;
  const Dims& strides = view.strides();
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype()));
  const auto* data = static_cast<const std::byte*>(view.data());
  return base::convert(
      ConstView(data + rows.begin * strides[2] * size, tensor.dtype(), shape, strides),
      tensor.dtype());
}

// Keys in pages of a few rows, each in memory of its own, in no order.
class PagedKeys final : public run::KeySource {
 public:
  PagedKeys(const Tensor& k, const Tensor& v, std::int64_t page, bool contiguous)
      : k_(k.view()), v_(v.view()), page_(page), contiguous_(contiguous) {
    const std::int64_t pages = (k.size(2) + page - 1) / page;
    for (std::int64_t p = k.size(0) * k.size(1) * pages; p-- > 0;) {
      pages_.push_back(std::make_unique<Page>());
      fill(*pages_.back(), p / pages, p % pages * page);
    }
    std::ranges::reverse(pages_);
  }
  std::int64_t batch() const override { return k_.size(0); }
  std::int64_t heads() const override { return k_.size(1); }
  Range positions() const override { return k_.size(2); }
  DType key_type() const override { return k_.dtype(); }
  DType value_type() const override { return v_.dtype(); }
  bool needs_copy(DType compute) const override { return k_.dtype() != compute || !contiguous_; }
  run::KeyRows rows(std::int64_t b, std::int64_t h, std::int64_t position) const override {
    const std::int64_t pages = (k_.size(2) + page_ - 1) / page_;
    const std::int64_t which =
        ((k_.size(0) == 1 ? 0 : b) * k_.size(1) + h) * pages + position / page_;
    const Page& page = *pages_[static_cast<std::size_t>(which)];
    const std::int64_t begin = position / page_ * page_;
    return {.begin = begin,
            .end = std::min(begin + page_, k_.size(2)),
            .keys = page.keys.data(),
            .values = page.values.data(),
            .key_stride = stride_of(k_),
            .value_stride = stride_of(v_)};
  }

 private:
  struct Page {
    std::vector<std::byte> keys, values;
  };
  std::int64_t stride_of(const ConstView& view) const {
    const std::int64_t row = view.size(3) * static_cast<std::int64_t>(size_of(view.dtype()));
    return contiguous_ ? row : row + 8;
  }
  void fill(Page& page, std::int64_t head, std::int64_t first) const {
    const auto copy = [&](std::vector<std::byte>& to, const ConstView& view) {
      const std::int64_t row = view.size(3) * static_cast<std::int64_t>(size_of(view.dtype()));
      to.resize(static_cast<std::size_t>(page_ * stride_of(view)));
      const auto* from = static_cast<const std::byte*>(view.data()) + head * view.size(2) * row;
      for (std::int64_t i = 0; i < std::min(page_, view.size(2) - first); ++i) {
        std::memcpy(to.data() + i * stride_of(view), from + (first + i) * row,
                    static_cast<std::size_t>(row));
      }
    };
    copy(page.keys, k_);
    copy(page.values, v_);
  }

  ConstView k_, v_;
  std::int64_t page_;
  bool contiguous_;
  std::vector<std::unique_ptr<Page>> pages_;
};

struct Whole {
  Tensor q, k, v, dout;
  DirectRun run;
  run::Scratch scratch;
  layout::Extent extent{2, 4, 130, 1300};

  explicit Whole(DType type)
      : q(random_tensor(1, type, {2, 4, 130, dim})),
        k(random_tensor(2, type, {2, 2, 1300, dim})),
        v(random_tensor(3, type, {2, 2, 1300, value_dim})),
        dout(random_tensor(4, type, {2, 4, 130, value_dim})),
        run(biased_window(), type, dim, value_dim) {
    extent.queries = {1170, 1300};  // the last ones
  }
};

TEST(Positions, QueriesOfALongerSequence) {
  Whole whole(DType::f32);
  const ConstView k = whole.k, v = whole.v;
  const run::TensorKeys keys(k, v);
  const Rows all =
      whole.run.forward(whole.q, keys, whole.run.build(whole.extent, 24), whole.scratch);
  for (const Range rows : {Range(0, 1), Range(7, 60), Range(129, 130)}) {
    layout::Extent extent = whole.extent;
    extent.queries = {1170 + rows.begin, 1170 + rows.end};
    const Tensor q = part(whole.q, rows);
    const Rows got =
        whole.run.forward(q, keys, whole.run.build(extent, 16), whole.scratch, *tbb_executor(2));
    EXPECT_TRUE(test::same_bits(got.out, part(all.out, rows))) << rows.begin;
  }
}

TEST(Positions, ThoseOfTheReference) {
  Whole whole(DType::f64);
  const ConstView k = whole.k, v = whole.v;
  const run::TensorKeys keys(k, v);
  const Rows all =
      whole.run.forward(whole.q, keys, whole.run.build(whole.extent, 24), whole.scratch);
  Options shifted = biased_window();
  const Options plain = shifted;
  shifted.score_mod = [&](Score s, Index b, Index h, Index q, Index kv) {
    return plain.score_mod(s, b, h, q + 1170, kv);
  };
  shifted.mask = [&](Index b, Index h, Index q, Index kv) {
    return plain.mask(b, h, q + 1170, kv);
  };
  shifted.backend = Backend::reference;
  shifted.scale = 0.25;
  const Forward expected = attention({whole.q, whole.k, whole.v}, shifted, {.lse = true});
  EXPECT_LT(test::largest_difference(all.out, expected.out), 1e-12);
  EXPECT_LT(test::largest_difference(all.lse, expected.lse), 1e-12);
}

TEST(Positions, KeysOfALongerSequence) {
  // What the mask hides need not be there: keys from 900 on, for queries that see no others.
  Options options;
  options.mask = [](Index, Index, Index q, Index kv) { return q >= kv && kv >= 900; };
  DirectRun run(options, DType::f32, dim, value_dim);
  Whole whole(DType::f32);
  const ConstView k = whole.k, v = whole.v;
  const Rows all =
      run.forward(whole.q, run::TensorKeys(k, v), run.build(whole.extent, 24), whole.scratch);
  layout::Extent extent = whole.extent;
  extent.keys = {900, 1300};
  const Tensor late_k = part(whole.k, extent.keys), late_v = part(whole.v, extent.keys);
  const ConstView some_k = late_k, some_v = late_v;
  const run::TensorKeys keys(some_k, some_v, 900);
  const layout::Layout layout = run.build(extent, 24);
  const Rows got = run.forward(whole.q, keys, layout, whole.scratch);
  EXPECT_TRUE(test::same_rows(got, all));
  const DirectRun::Gradients g =
      run.backward(whole.q, keys, got, whole.dout, layout, whole.scratch);
  const DirectRun::Gradients expected = run.backward(
      whole.q, run::TensorKeys(k, v), all, whole.dout, run.build(whole.extent, 24), whole.scratch);
  EXPECT_TRUE(test::same_bits(g.dq, expected.dq));
  EXPECT_TRUE(test::same_bits(g.dk, part(expected.dk, extent.keys)));
  EXPECT_TRUE(test::same_bits(g.dv, part(expected.dv, extent.keys)));
}

TEST(KeySources, PiecesHaveTheBitsOfTheWhole) {
  for (const DType type : {DType::f32, DType::bf16, DType::f64}) {
    Whole whole(type);
    const ConstView k = whole.k, v = whole.v;
    const run::TensorKeys keys(k, v);
    const layout::Layout layout = whole.run.build(whole.extent, 24);
    const Rows expected = whole.run.forward(whole.q, keys, layout, whole.scratch);
    const DirectRun::Gradients gradients =
        whole.run.backward(whole.q, keys, expected, whole.dout, layout, whole.scratch);
    for (const std::int64_t page : {1, 7, 16, 100, 1300}) {
      for (const bool contiguous : {true, false}) {
        const PagedKeys paged(whole.k, whole.v, page, contiguous);
        const Rows got = whole.run.forward(whole.q, paged, layout, whole.scratch, *tbb_executor(2));
        EXPECT_TRUE(test::same_rows(got, expected)) << name_of(type) << ", pages of " << page;
        const DirectRun::Gradients g = whole.run.backward(whole.q, paged, expected, whole.dout,
                                                          layout, whole.scratch, *tbb_executor(2));
        EXPECT_TRUE(test::same_bits(g.dq, gradients.dq));
        EXPECT_TRUE(test::same_bits(g.dk, gradients.dk));
        EXPECT_TRUE(test::same_bits(g.dv, gradients.dv));
      }
    }
  }
}

// However many keys come after those that a row sees: borders of partial sums follow from positions
// alone. Rows and their gradients on both sides of every kind of border.
TEST(Positions, LaterKeysChangeNothing) {
  Options options;
  options.score_mod = [](Score s, Index, Index, Index q, Index kv) { return s + 1e-4 * (kv - q); };
  options.mask = mods::causal();
  constexpr std::int64_t longest = 140'000, narrow = 4;
  const Tensor k = random_tensor(2, DType::f32, {1, 1, longest, narrow});
  const Tensor v = random_tensor(3, DType::f32, {1, 1, longest, narrow});
  const Tensor q = random_tensor(4, DType::f32, {1, 1, 5, narrow});
  const Tensor dout = random_tensor(5, DType::f32, {1, 1, 5, narrow});
  DirectRun run(options, DType::f32, narrow, narrow);
  run::Scratch scratch;
  for (const std::int64_t n :
       {5, 1024, 1025, 3000, 65'536, 65'540, 67'584, 67'590, 131'072, 131'075}) {
    std::optional<Rows> expected;
    std::optional<Tensor> expected_dq;
    for (const std::int64_t length : {n, n + 1, n + 700, n + 5000, longest}) {
      const ConstView keys(k.view().data(), DType::f32, {1, 1, length, narrow}, k.view().strides());
      const ConstView values(v.view().data(), DType::f32, {1, 1, length, narrow},
                             v.view().strides());
      const run::TensorKeys source(keys, values);
      layout::Extent extent{1, 1, 5, length};
      extent.queries = {n - 5, n};
      const auto executor = tbb_executor(length == n ? 1 : 3);
      const layout::Layout layout = run.build(extent, 24);
      const Rows got = run.forward(q, source, layout, scratch, *executor);
      if (!expected) expected = {got.out.clone(), got.lse.clone(), got.max.clone()};
      EXPECT_TRUE(test::same_rows(got, *expected)) << n << " of " << length;
      const Tensor dq = run.backward(q, source, got, dout, layout, scratch, *executor).dq;
      if (!expected_dq) expected_dq = dq.clone();
      EXPECT_TRUE(test::same_bits(dq, *expected_dq)) << n << " of " << length;
    }
  }
}

// The workspaces of a serial run: what is promised is what is taken, to the byte.
TEST(ScratchSizes, AreWhatTasksTake) {
  // A bias that is staged, of 8 bytes an element.
  Options biased;
  const Tensor bias(DType::f64, {1500, 1500});
  biased.score_mod = [&](Score s, Index, Index, Index q, Index kv) { return s + bias(q, kv); };
  for (const std::int64_t staged : {0, 8})
    for (const DType type : {DType::f32, DType::f64, DType::bf16}) {
      for (const std::int64_t length : {100, 1500}) {
        DirectRun run(staged > 0 ? biased : Options(), type, dim, value_dim);
        const plan::TilePlan plan = run.plan(plan::most_vectors);
        const Tensor q = random_tensor(1, type, {1, 1, length, dim});
        const Tensor k = random_tensor(2, type, {1, 1, length, dim});
        const Tensor v = random_tensor(3, type, {1, 1, length, value_dim});
        const Tensor dout = random_tensor(4, type, {1, 1, length, value_dim});
        const ConstView keys = k, values = v;
        const run::TensorKeys source(keys, values);
        const layout::Layout layout = run.build({1, 1, length, length}, plan.width());
        run::Scratch forward_scratch, backward_scratch;
        const Rows rows = run.forward(q, source, layout, forward_scratch);
        const bool copies = source.needs_copy(plan.compute);
        const std::int64_t promised = run::forward_scratch(
            plan, plan::tiles_per_group(plan, copies), {.staged = staged}, false);
        std::vector<std::size_t> taken = forward_scratch.sizes();
        const auto largest = static_cast<std::int64_t>(std::ranges::max(taken));
        EXPECT_LE(largest, promised);
        if (layout.tiles().count() >= plan::tiles_per_group(plan, copies)) {
          EXPECT_EQ(largest, promised);
        }
        run.backward(q, source, rows, dout, layout, backward_scratch);
        taken = backward_scratch.sizes();
        const std::int64_t leaf = plan::tiles_per_leaf(plan);
        const auto task = static_cast<std::size_t>(run::backward_scratch(
            plan, std::min<std::int64_t>(length, 1024), (layout.tiles().count() + leaf - 1) / leaf,
            0, {.staged = staged}));
        EXPECT_EQ(std::ranges::count(taken, task), 1) << name_of(type) << " " << length;
      }
    }
}

}  // namespace
}  // namespace treadle
