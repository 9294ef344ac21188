// Masks of several terms: gradients over passes are the definition's, of captures too, for any
// number of threads.
#include <gtest/gtest.h>

#include <array>

#include "close.h"
#include "split_masks.h"

namespace treadle {
namespace {

using test::Random;
using test::random_int;

// Score mods with a table whose gradient is asked for; what it is read by decides where sums go.
struct TableForm {
  const char* score;
  Dims shape;
};

constexpr std::int64_t longest_row = 100;

TableForm random_form(Random& random) {
  const std::array forms{
      TableForm{"score + table[h]", {4}},
      TableForm{"score + table[h, kv]", {4, longest_row}},
      TableForm{"score + table[q] * 0.5", {longest_row}},
      TableForm{"score + table[q - kv + 99]", {2 * longest_row}},
      TableForm{"score * table[abs(q - kv)]", {longest_row}},
      TableForm{"score + table[q, kv]", {longest_row, longest_row}},
      TableForm{"score + table[b, h] * float(q - kv) * 0.0625", {2, 4}},
  };
  return forms[static_cast<std::size_t>(random_int(random, 0, std::ssize(forms) - 1))];
}

struct PassesGradients {
  test::SplitMods mods;
  std::shared_ptr<Tensor> table;  // null: the score mod has none
  Attention fast, exact;

  static PassesGradients draw(Random& random) {
    test::SplitMods mods = test::split_mods(random);
    std::shared_ptr<Tensor> table;
    Options options;
    if (random_int(random, 0, 1) == 0) {
      const TableForm form = random_form(random);
      table = std::make_shared<Tensor>(DType::f32, form.shape);
      for (float& x : table->data<float>())
        x = static_cast<float>(test::random_real(random, -1, 1));
      mods.score = form.score;
      options.score_mod = parse(form.score, {{"table", *table}});
      options.gradients = {"table"};
    } else {
      mods.score = test::random_score(random);
      options.score_mod = parse(mods.score);
    }
    options.mask = parse(ir::to_text(mods.mask), mods.captures());
    options.scale = 0.25;
    Options reference = options;
    reference.backend = Backend::reference;
    return {std::move(mods), table, compile(options), compile(reference)};
  }
};

double gradient_tolerance(DType type) {
  return type == DType::f64 ? 1e-10 : type == DType::f32 ? 1e-4 : 2e-2;
}

// Special numbers at the same elements, the others near. How many are special.
std::int64_t expect_gradient(const Tensor& got, const Tensor& expected, double tolerance,
                             const char* what) {
  const test::Array x{ConstView(got)}, y{ConstView(expected)};
  double largest = 1;
  for (const double number : y.data)
    if (std::isfinite(number)) largest = std::max(largest, std::abs(number));
  std::int64_t special = 0;
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    special += std::isfinite(y.data[i]) ? 0 : 1;
    EXPECT_PRED2(test::detail::same_kind, x.data[i], y.data[i]) << what << ", element " << i;
    if (std::isfinite(y.data[i])) {
      EXPECT_NEAR(x.data[i], y.data[i], tolerance * largest) << what << ", element " << i;
    }
    if (testing::Test::HasFailure()) return special;
  }
  return special;
}

std::int64_t expect_gradients(const Backward& got, const Backward& expected, DType type) {
  const double tolerance = gradient_tolerance(type);
  std::int64_t special = expect_gradient(got.dq, expected.dq, tolerance, "dq") +
                         expect_gradient(got.dk, expected.dk, tolerance, "dk") +
                         expect_gradient(got.dv, expected.dv, tolerance, "dv");
  // A table is f32 whatever the inputs are.
  for (const CaptureGradient& capture : got.captures)
    special += expect_gradient(capture.gradient, expected.of(capture.name),
                               std::max(tolerance, gradient_tolerance(DType::f32)), "table");
  return special;
}

bool same_gradients(const Backward& a, const Backward& b) {
  bool same = test::same_numbers(a.dq, b.dq) && test::same_numbers(a.dk, b.dk) &&
              test::same_numbers(a.dv, b.dv);
  for (const CaptureGradient& capture : a.captures)
    same = same && test::same_numbers(capture.gradient, b.of(capture.name));
  return same;
}

// With and without a slope of lse, on one thread, on three, and with a layout that is held.
std::int64_t check_gradients(Random& random, const PassesGradients& f,
                             const test::SplitTensors& tensors) {
  const Inputs inputs = tensors.inputs();
  const Call serial{.executor = serial_executor(), .lse = true};
  const Forward y = f.fast.forward(inputs, serial);
  const Saved saved{y.out, y.lse};
  std::optional<ConstView> dlse;
  if (random_int(random, 0, 1) == 0) dlse = tensors.dlse;
  const Backward got = f.fast.backward(inputs, saved, tensors.dout, dlse, serial);
  const std::int64_t special = expect_gradients(
      got, f.exact.backward(inputs, saved, tensors.dout, dlse, serial), inputs.q.dtype());
  const Layout layout = f.fast.layout(inputs);
  for (const int threads : {1, 3}) {
    const auto shuffled = std::make_shared<test::ShuffledExecutor>(threads, random());
    const Call call{.executor = threads == 1 ? shuffled : tbb_executor(threads), .layout = layout};
    EXPECT_TRUE(same_gradients(f.fast.backward(inputs, saved, tensors.dout, dlse, call), got))
        << threads;
  }
  return special;
}

// dQ of a row is the same for any tiles.
void check_other_tiles(Random& random, const PassesGradients& f,
                       const test::SplitTensors& tensors) {
  test::SplitMods mods = f.mods;
  mods.score = "score";  // a layout is of the mask alone
  const Inputs inputs = tensors.inputs();
  const Forward y = f.fast.forward(inputs, {.lse = true});
  const auto dq_with = [&](const Layout& layout) {
    const Call call{.executor = tbb_executor(2), .layout = layout};
    return f.fast.backward(inputs, {y.out, y.lse}, tensors.dout, tensors.dlse, call).dq;
  };
  const layout::Order order{.kind = layout::Order::Kind::residue,
                            .modulus = random_int(random, 1, 9)};
  const std::int64_t height = random_int(random, 1, 40);
  const Layout other =
      test::ForwardRun(mods.graphs()).passes(test::extent_of(inputs), order, height);
  EXPECT_TRUE(test::same_bits(dq_with(other), dq_with({})))
      << "residues of " << order.modulus << ", height " << height;
}

TEST(PassesBackward, LikeTheDefinitionAndWithTheSameBitsForAnyThreads) {
  int several = 0;
  for (int round = 0; round < test::fuzz_count(120); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    const PassesGradients f = PassesGradients::draw(random);
    SCOPED_TRACE(f.mods.text());
    several += f.mods.terms().empty() ? 0 : 1;
    test::SplitShape shape = test::random_shape(random, longest_row);
    for (int problem = 0; problem < 3; ++problem) {
      const test::SplitTensors tensors(random, shape);
      check_gradients(random, f, tensors);
      if (problem == 0 && random_int(random, 0, 3) == 0) check_other_tiles(random, f, tensors);
      if (HasFailure()) return;
      draw_lengths(random, shape, longest_row, f.table == nullptr);
      draw_captures(random, f.mods);
    }
  }
  EXPECT_GE(several, test::fuzz_at_least(90));
}

// What does not see them does not hear of them, in any pass.
TEST(PassesBackward, HasSpecialNumbersWhereTheDefinitionHas) {
  std::int64_t special = 0;
  for (int round = 0; round < test::fuzz_count(60); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    const PassesGradients f = PassesGradients::draw(random);
    SCOPED_TRACE(f.mods.text());
    test::SplitShape shape = test::random_shape(random, longest_row);
    for (int problem = 0; problem < 4; ++problem) {
      test::SplitTensors tensors(random, shape);
      Tensor* const spoilt[]{&tensors.q, &tensors.k, &tensors.v, &tensors.dout};
      test::spoil_a_row(random, *spoilt[problem]);
      special += check_gradients(random, f, tensors);
      if (HasFailure()) return;
      draw_lengths(random, shape, longest_row, f.table == nullptr);
    }
  }
  EXPECT_GE(special, test::fuzz_at_least(600));
}

}  // namespace
}  // namespace treadle
