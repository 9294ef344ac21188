// Masks of several terms whose numbers are scalars, captures of rank 0: other numbers need no other
// kernels, and the bits are those of constants.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "api/inspect.h"
#include "backend/held_layout.h"
#include "split_masks.h"

namespace treadle {
namespace {

using test::Random;

// "{w}" and "{s}" are the window and the stride, as names or as numbers.
struct ScalarCase {
  const char* name;
  const char* mask;

  friend void PrintTo(const ScalarCase& c, std::ostream* out) { *out << c.name; }

  [[nodiscard]] std::string with(const std::string& w, const std::string& s) const {
    return fmt::format(fmt::runtime(mask), fmt::arg("w", w), fmt::arg("s", s));
  }
};

const ScalarCase scalar_cases[] = {
    {"strided", "q >= kv && (q - kv < {w} || (q - kv) % {s} == 0)"},
    {"fixed", "q >= kv && (q - kv < {w} || q // {s} == kv // {s} || kv % {s} >= {s} - 2)"},
    {"heads", "q >= kv && where(h == 0, q - kv < {w}, (q - kv) % {s} == 0 && q - kv >= {w})"},
    {"prefix", "kv < {w} || (q - kv) % {s} == 0 && q - kv < 10 * {w}"},
};

// Of every term: kernels depend on it.
std::string tiles_of(const Layout& layout) {
  std::string text;
  for (const Layout::Held::Term& term : layout.held()->terms)
    text += fmt::format("{} {} {} {};", to_text(term.layout.tiles().order()),
                        term.layout.tiles().height(), term.layout.has_full(),
                        term.layout.has_partial());
  return text;
}

class ScalarMasks : public testing::TestWithParam<ScalarCase> {
 protected:
  Random random = test::rng(3);
  test::SplitTensors t{random, {.heads = 2, .queries = 200, .keys = 200}};
  Attention by_name = attention(GetParam().with("w", "s"), {{"w", 9}, {"s", 16}});

  static Attention attention(const std::string& mask, const std::vector<Capture>& captures) {
    Options options;
    options.mask = parse(mask, captures);
    return compile(options);
  }
  static std::vector<Capture> numbers(int w, int s) { return {{"w", w}, {"s", s}}; }
};

INSTANTIATE_TEST_SUITE_P(Cases, ScalarMasks, testing::ValuesIn(scalar_cases),
                         [](const auto& info) { return std::string(info.param.name); });

// Unless its tiles are others.
TEST_P(ScalarMasks, NeedNoKernelsForAnotherWindow) {
  std::set<std::string> known;
  int repeated = 0;
  for (const int w : {9, 10, 11, 12, 37, 38, 39}) {
    const Call call{.captures = numbers(w, 16), .executor = serial_executor(), .lse = true};
    const bool is_new = known.insert(tiles_of(by_name.layout(t.inputs(), call))).second;
    const std::int64_t before = api::kernels_made();
    const Forward y = by_name.forward(t.inputs(), call);
    (void)by_name.backward(t.inputs(), {y.out, y.lse}, t.dout, {}, call);
    if (is_new) continue;
    ++repeated;
    EXPECT_EQ(api::kernels_made(), before) << "window " << w;
  }
  EXPECT_GE(repeated, 2);
}

void expect_same(const Forward& a, const Forward& b) {
  EXPECT_TRUE(test::same_bits(a.out, b.out));
  EXPECT_TRUE(test::same_bits(a.lse, b.lse));
  EXPECT_TRUE(test::same_bits(a.max, b.max));
}

TEST_P(ScalarMasks, HaveTheBitsOfConstants) {
  std::vector<std::pair<int, int>> all{{9, 16}, {0, 16},  {9, 1},  {16, 16}, {500, 16},
                                       {1, 16}, {30, 16}, {9, 12}, {9, 2}};
  if (test::fuzz_size() != test::FuzzSize::full) all.resize(4);
  for (const auto& [w, s] : all) {
    SCOPED_TRACE(fmt::format("window {}, stride {}", w, s));
    const Attention by_number =
        attention(GetParam().with(std::to_string(w), std::to_string(s)), {});
    const Call named{
        .captures = numbers(w, s), .executor = serial_executor(), .lse = true, .max = true};
    const Call plain{.executor = serial_executor(), .lse = true, .max = true};
    const Forward got = by_name.forward(t.inputs(), named);
    expect_same(got, by_number.forward(t.inputs(), plain));
    if (s != 16) continue;  // new kernels, which take long
    const auto gradients = [&](const Attention& f, const Call& call) {
      return f.backward(t.inputs(), {got.out, got.lse}, t.dout, {}, call);
    };
    const Backward slopes = gradients(by_name, named), expected = gradients(by_number, plain);
    EXPECT_TRUE(test::same_bits(slopes.dq, expected.dq));
    // A term that is empty for these numbers may leave other tiles behind than none.
    const bool same_tiles = tiles_of(by_name.layout(t.inputs(), named)) ==
                            tiles_of(by_number.layout(t.inputs(), plain));
    EXPECT_TRUE(same_tiles || w == 0);
    if (!same_tiles) continue;
    EXPECT_TRUE(test::same_bits(slopes.dk, expected.dk));
    EXPECT_TRUE(test::same_bits(slopes.dv, expected.dv));
  }
}

// A layout is of the numbers that it was made with.
TEST_P(ScalarMasks, KeepALayoutForTheirNumbers) {
  const Call call{.captures = numbers(20, 16), .executor = serial_executor()};
  Call held = call;
  held.layout = by_name.layout(t.inputs(), call);
  (void)by_name.forward(t.inputs(), {.captures = numbers(5, 7)});
  EXPECT_TRUE(test::same_bits(by_name.forward(t.inputs(), held).out,
                              by_name.forward(t.inputs(), call).out));
}

}  // namespace
}  // namespace treadle
