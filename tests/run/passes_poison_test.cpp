// Masks of several terms that read outside of captures or divide by zero: a call fails exactly when
// the definition does, whatever part of the mask another pass has. Else its results are the
// definition's.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <limits>

#include "close.h"
#include "split_masks.h"
#include "treadle/error.h"

namespace treadle {
namespace {

using test::Random;
using test::random_int;

// What masks may read, of these lengths, and how long sequences are.
struct RiskySizes {
  std::int64_t cap = 1, divisors = 4;
  std::int64_t queries = 1, keys = 1;
};

class RiskyMask {
 public:
  explicit RiskyMask(Random& random) : random_(random) {}

  std::string make(int parts) {
    if (parts <= 1) return random_int(random_, 0, 2) == 0 ? risky() : safe();
    const int left = static_cast<int>(random_int(random_, 1, parts - 1));
    const std::string a = make(left), b = make(parts - left);
    switch (random_int(random_, 0, 9)) {
      case 0: return "not (" + a + " && " + b + ")";
      case 1: return "where(" + safe() + ", " + a + ", " + b + ")";
      case 2: return "where(" + risky() + ", " + a + ", " + b + ")";
      default: return "(" + a + (random_int(random_, 0, 2) == 0 ? " && " : " || ") + b + ")";
    }
  }

 private:
  std::string number(std::int64_t low, std::int64_t high) {
    return std::to_string(random_int(random_, low, high));
  }
  std::string risky() {
    switch (random_int(random_, 0, 8)) {
      case 0: return "cap[kv] == " + number(0, 2);
      case 1: return "cap[q] > " + number(0, 1);
      case 2: return "cap[q - kv] != 1";
      case 3: return "cap[kv + " + number(0, 4) + "] < 2";
      case 4: return "q % by[h] == " + number(0, 1);
      case 5: return "(q - kv) // by[b] < " + number(1, 9);
      case 6: return "(q - kv) % by[q % 4] == 0";
      case 7: return "kv % " + number(2, 5) + " == cap[kv]";
      default: return "(q - kv) % " + number(2, 5) + " == by[kv // 8]";
    }
  }
  std::string safe() {
    switch (random_int(random_, 0, 10)) {
      case 0: return "kv >= n";
      case 1: return "kv < n";
      case 2: return "q < n";
      case 3: return "(q - kv) % " + number(2, 5) + " == 0";
      case 4: return "by[h] != 0";
      case 5: return "q - kv < " + number(1, 12);
      case 6: return "q >= kv";
      case 7: return "q // 4 == kv // 4";
      case 8: return "level[kv % 4] < 0.5";  // which may be NaN
      case 9: return "not (level[q % 4] >= level[kv % 4])";
      default: return "h == " + number(0, 1);
    }
  }

  Random& random_;
};

struct RiskyCase {
  std::string mask;
  std::string score = "score";
  bool backward = false;  // its kernels take as long to compile as all others
  Tensor cap, by{DType::i32, {4}}, n{DType::i32, {}}, level{DType::f32, {4}};

  // Sometimes as long as every index, sometimes shorter; divisors are seldom 0.
  void draw(Random& random, const RiskySizes& sizes) {
    cap = Tensor(DType::i32, {sizes.cap});
    for (std::int32_t& x : cap.data<std::int32_t>())
      x = static_cast<std::int32_t>(random_int(random, 0, 2));
    const bool zeros = random_int(random, 0, 2) == 0;
    for (std::int32_t& x : by.data<std::int32_t>())
      x = static_cast<std::int32_t>(random_int(random, zeros ? 0 : 1, 4));
    const float levels[]{0, 1, -1, std::numeric_limits<float>::quiet_NaN()};
    for (float& x : level.data<float>()) x = levels[random_int(random, 0, 3)];
    // Where it is the length, "kv < n" keeps reads inside.
    n.data<std::int32_t>()[0] = static_cast<std::int32_t>(
        random_int(random, 0, 2) == 0 ? random_int(random, 0, 40) : sizes.cap);
  }
  [[nodiscard]] std::vector<Capture> captures() const {
    return {{"cap", ConstView(cap)},
            {"by", ConstView(by)},
            {"n", ConstView(n)},
            {"level", ConstView(level)}};
  }
  // Those that the mods read.
  [[nodiscard]] std::vector<Capture> captures_of(const Attention& attention) const {
    std::vector<Capture> all = captures(), read;
    for (const CaptureInfo& info : attention.captures())
      read.push_back(*std::ranges::find(all, info.name, &Capture::name));
    return read;
  }
};

struct Tried {
  std::string error;  // empty: it went well
  Forward y;
  Backward g;
};

Tried try_call(const Attention& attention, const RiskyCase& c, const test::SplitTensors& tensors,
               std::shared_ptr<Executor> executor) {
  const Call call{.captures = c.captures_of(attention),
                  .executor = std::move(executor),
                  .lse = true,
                  .max = true};
  Tried tried;
  try {
    tried.y = attention.forward(tensors.inputs(), call);
  } catch (const ModError& error) {
    tried.error = error.what();
    if (!c.backward) return tried;
    // Backward has its own kernels; any numbers do for what the forward pass would have given.
    const Saved saved{tensors.dout, tensors.dlse};
    EXPECT_THROW((void)attention.backward(tensors.inputs(), saved, tensors.dout, {}, call),
                 ModError);
    return tried;
  }
  if (!c.backward) return tried;
  tried.g =
      attention.backward(tensors.inputs(), {tried.y.out, tried.y.lse}, tensors.dout, {}, call);
  return tried;
}

struct RiskyCount {
  int failed = 0, succeeded = 0;
};

void check_call(Random& random, const Attention& fast, const Attention& exact, const RiskyCase& c,
                const RiskySizes& sizes, RiskyCount& count) {
  const test::SplitTensors tensors(
      random,
      {.batch = 2, .heads = 2, .key_heads = 1, .queries = sizes.queries, .keys = sizes.keys});
  const auto shuffled = std::make_shared<test::ShuffledExecutor>(3, random());
  const Tried mine = try_call(fast, c, tensors, shuffled);
  const Tried theirs = try_call(exact, c, tensors, serial_executor());
  ASSERT_EQ(mine.error.empty(), theirs.error.empty()) << mine.error << theirs.error;
  if (!mine.error.empty()) {
    ++count.failed;
    EXPECT_NE(mine.error.find(", at (b "), std::string::npos) << mine.error;
    return;
  }
  ++count.succeeded;
  const auto near = [](const Tensor& a, const Tensor& b, const char* what) {
    EXPECT_LE(test::largest_difference(a, b), 1e-4) << what;
  };
  test::expect_alike({mine.y.out.clone(), mine.y.lse.clone(), mine.y.max.clone()},
                     {theirs.y.out.clone(), theirs.y.lse.clone(), theirs.y.max.clone()}, 1e-5);
  if (!c.backward) return;
  near(mine.g.dq, theirs.g.dq, "dq");
  near(mine.g.dk, theirs.g.dk, "dk");
  near(mine.g.dv, theirs.g.dv, "dv");
}

void fuzz_poison(std::uint64_t seed, const std::string& mask, RiskyCount& count) {
  Random random = test::rng(seed);
  RiskyCase c;
  c.backward = random_int(random, 0, 3) == 0;
  c.mask = mask.empty() ? RiskyMask(random).make(static_cast<int>(random_int(random, 2, 5))) : mask;
  if (random_int(random, 0, 4) == 0) c.score = "score + where(kv < n, float(cap[kv]), 0.0)";
  SCOPED_TRACE(c.mask);
  c.draw(random, {});
  Options options;
  options.score_mod = parse(c.score, c.captures());
  options.mask = parse(c.mask, c.captures());
  const Attention fast = compile(options);
  options.backend = Backend::reference;
  const Attention exact = compile(options);
  for (int problem = 0; problem < 10; ++problem) {
    RiskySizes sizes{.queries = random_int(random, 1, 30), .keys = random_int(random, 1, 30)};
    sizes.cap = random_int(random, 0, 1) == 0 ? random_int(random, 1, 30) : 40;
    c.draw(random, sizes);
    SCOPED_TRACE(fmt::format("{} queries, {} keys, {} in cap, n {}, by {}", sizes.queries,
                             sizes.keys, sizes.cap, c.n.data<std::int32_t>()[0],
                             fmt::join(c.by.data<std::int32_t>(), " ")));
    check_call(random, fast, exact, c, sizes, count);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(PassesPoison, FailsWhereTheDefinitionDoes) {
  RiskyCount count;
  for (int round = 0; round < test::fuzz_count(120); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    fuzz_poison(seed, "", count);
    if (HasFailure()) return;
  }
  EXPECT_GE(count.failed, test::fuzz_at_least(200));
  EXPECT_GE(count.succeeded, test::fuzz_at_least(200));
}

// The masks that people would write.
TEST(PassesPoison, WhereAnotherPartDecides) {
  RiskyCount count;
  std::uint64_t seed = test::fuzz_seed(0);
  SCOPED_TRACE(test::seed_text(seed));
  for (const char* mask : {
           "kv >= n || cap[kv] == 1 || (q - kv) % 4 == 0",
           "(kv < n && cap[kv] == 1) || (q - kv) % 4 == 0",
           "cap[kv] == 1 || (q - kv) % 4 == 0",
           "(q - kv) % 4 == 0 || cap[kv] == 1",
           "where(kv < n, cap[kv] == 1, (q - kv) % 4 == 0)",
           "q - kv < 3 || by[h] == 0 || (q - kv) % by[h] == 0 || kv % 3 == 0",
           "q - kv < 3 || (q - kv) % by[h] == 0 || kv % 3 == 0",
           "by[h] != 0 && q % by[h] == 0 || q // 4 == kv // 4",
       }) {
    fuzz_poison(seed++, mask, count);
    if (HasFailure()) return;
  }
  EXPECT_GT(count.failed, 0);
  EXPECT_GT(count.succeeded, 0);
}

// A scalar that is divided by: zero is known before any call looks at pairs.
TEST(PassesPoison, OfAScalarThatIsZero) {
  Random random = test::rng(1);
  const test::SplitTensors tensors(random, {.heads = 2, .queries = 40, .keys = 40});
  for (const auto& [mask, fails] :
       {std::pair("q - kv < 3 || (q - kv) % stride == 0", true),
        std::pair("stride == 0 || (q - kv) % stride == 0 || q // 4 == kv // 4", false),
        std::pair("q - kv < 3 || (stride != 0 && (q - kv) % stride == 0)", false),
        std::pair("h == 5 && (q - kv) % stride == 0 || kv % 3 == 0", false),
        std::pair("q // 4 == kv // 4 || kv % 3 == 1 && (q - kv) // stride == 2", true)}) {
    SCOPED_TRACE(mask);
    Options options;
    options.mask = parse(mask, {{"stride", 4}});
    const Attention fast = compile(options);
    options.backend = Backend::reference;
    const Attention exact = compile(options);
    for (const int stride : {4, 0, 5, 0}) {
      const Call call{.captures = {{"stride", stride}}, .executor = serial_executor(), .lse = true};
      if (stride == 0 && fails) {
        EXPECT_THROW((void)exact.forward(tensors.inputs(), call), ModError);
        EXPECT_THROW((void)fast.forward(tensors.inputs(), call), ModError);
        continue;
      }
      const Forward y = fast.forward(tensors.inputs(), call);
      EXPECT_LE(test::largest_difference(y.out, exact.forward(tensors.inputs(), call).out), 1e-5)
          << stride;
    }
  }
}

}  // namespace
}  // namespace treadle
