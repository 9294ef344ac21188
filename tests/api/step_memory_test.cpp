// A step of a decoder, a token longer than the one before, allocates nothing: neither for its layout
// nor for its tasks. Where results are not given, they are all that is allocated.
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <vector>

#include "faults.h"
#include "plain_attention.h"
#include "treadle/attention.h"

namespace treadle {
namespace {

using test::faults;
using test::random_tensor;

constexpr std::int64_t longest = 1500, heads = 8, dim = 16;

struct StepCase {
  std::string mask;
  DType type;
  std::int64_t key_heads;
};

void PrintTo(const StepCase& c, std::ostream* out) {
  *out << c.mask << name_of(c.type) << (c.key_heads < heads ? "Grouped" : "");
}

std::vector<StepCase> step_cases() {
  std::vector<StepCase> cases;
  for (const auto* mask :
       {"causal", "window", "windowAndFirst", "scalarWindow", "documents", "longDocuments"})
    for (const DType type : {DType::f32, DType::bf16})
      for (const std::int64_t key_heads : {heads, heads / 4})
        cases.push_back({mask, type, key_heads});
  return cases;
}

// A cache, and one sequence that grows in it.
class Steps : public testing::TestWithParam<StepCase> {
 protected:
  Tensor q = random_tensor(1, GetParam().type, {1, heads, 1, dim});
  Tensor k = random_tensor(2, GetParam().type, {1, GetParam().key_heads, longest, dim});
  Tensor v = random_tensor(3, GetParam().type, {1, GetParam().key_heads, longest, dim});
  Tensor out{GetParam().type, {1, heads, 1, dim}};
  Tensor lse{DType::f32, {1, heads, 1}};
  std::vector<std::int32_t> ids = std::vector<std::int32_t>(longest);
  std::vector<std::int64_t> long_ids = std::vector<std::int64_t>(longest);
  Call call{.executor = tbb_executor(2), .q_offsets = {0}};

  [[nodiscard]] MaskMod mask() {
    for (std::size_t i = 0; i < ids.size(); ++i)
      long_ids[i] = ids[i] = static_cast<std::int32_t>(i / 400);
    const std::string& name = GetParam().mask;
    if (name == "window")
      return [](Index, Index, Index m, Index n) { return n <= m && m - n < 300; };
    if (name == "windowAndFirst")
      return [](Index, Index, Index m, Index n) { return n <= m && (m - n < 300 || n < 4); };
    if (name == "scalarWindow") {
      return [size = Capture("size", std::int64_t{300})](Index, Index, Index m, Index n) {
        return n <= m && m - n < size;
      };
    }
    if (name == "documents") {
      return [of = Capture("of", ConstView(ids.data(), {longest}))](
                 Index, Index, Index m, Index n) { return n <= m && of(m) == of(n); };
    }
    if (name == "longDocuments") {
      return [of = Capture("of", ConstView(long_ids.data(), {longest}))](
                 Index, Index, Index m, Index n) { return n <= m && of(m) == of(n); };
    }
    return [](Index, Index, Index m, Index n) { return n <= m; };
  }

  static Dims shape_of(const Tensor& cache, std::int64_t length) {
    return {1, cache.size(1), length, dim};
  }
  void step(const Attention& attend, std::int64_t length) {
    call.q_offsets[0] = length - 1;
    const ConstView keys(k.view().data(), k.dtype(), shape_of(k, length), k.view().strides());
    const ConstView values(v.view().data(), v.dtype(), shape_of(v, length), v.view().strides());
    attend.forward_into({out.view(), lse.view(), std::nullopt}, {q, keys, values}, call);
  }
};

INSTANTIATE_TEST_SUITE_P(Of, Steps, testing::ValuesIn(step_cases()),
                         testing::PrintToStringParamName());

TEST_P(Steps, AllocateNothing) {
  Options options;
  options.mask = mask();
  const Attention attend = compile(options);
  // Both ways through: a chunk of keys, and several that two threads share.
  for (const std::int64_t first : {std::int64_t{20}, longest - 100}) {
    for (std::int64_t length = first; length < first + 100; length += 10) step(attend, length);
    std::int64_t most = 0;
    for (std::int64_t length = first; length < first + 100; ++length) {
      faults.count();
      step(attend, length);
      most = std::max(most, faults.disarm());
    }
    EXPECT_EQ(most, 0) << "from length " << first;
    // What was left from the steps before does not show.
    const Tensor grown = out.clone();
    const Attention another = compile(options);
    step(another, first + 99);
    EXPECT_TRUE(test::same_bits(out, grown));
  }
}

TEST_P(Steps, AllocateTheirResultsAlone) {
  Options options;
  options.mask = mask();
  const Attention attend = compile(options);
  call.lse = true;
  call.q_offsets = {longest - 1};
  Forward y = attend.forward({q, k, v}, call);
  faults.count();
  const Tensor one(DType::f32, {1, heads, 1, dim});
  const std::int64_t of_a_tensor = faults.disarm();
  faults.count();
  y = attend.forward({q, k, v}, call);
  EXPECT_EQ(faults.disarm(), 2 * of_a_tensor);
}

// A capture that is written to between two steps is read anew.
TEST(StepMemory, DoesNotRememberCaptures) {
  Tensor q = random_tensor(1, DType::f32, {1, 2, 1, dim});
  Tensor k = random_tensor(2, DType::f32, {1, 2, longest, dim});
  std::vector<std::int32_t> ids(longest);
  Options options;
  options.mask = [of = Capture("of", ConstView(ids.data(), {longest}))](
                     Index, Index, Index m, Index n) { return n <= m && of(m) == of(n); };
  const Attention attend = compile(options);
  const Call call{.q_offsets = {longest - 1}};
  for (std::int32_t length = 1; length < 800; length += 97) {
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<std::int32_t>(i) / length - (i % 700 == 3 ? 5 : 0);
    const Tensor y = attend.forward({q, k, k}, call).out;
    EXPECT_TRUE(test::same_bits(y, attention({q, k, k}, options, call).out)) << length;
    EXPECT_EQ(attend.layout({q, k, k}, call).describe(),
              compile(options).layout({q, k, k}, call).describe());
  }
}

// Calls at the same time, of one function, each have their own.
TEST(StepMemory, IsNotShared) {
  Tensor q = random_tensor(1, DType::f32, {1, 2, 1, dim});
  Tensor k = random_tensor(2, DType::f32, {1, 2, longest, dim});
  Options options;
  options.mask = [](Index, Index, Index m, Index n) { return n <= m && m - n < 300; };
  const Attention attend = compile(options);
  std::vector<Tensor> expected;
  const auto step = [&](std::int64_t i) {
    return attend.forward({q, k, k}, {.executor = tbb_executor(1), .q_offsets = {100 + 10 * i}});
  };
  for (std::int64_t i = 0; i < 100; ++i) expected.push_back(step(i).out);
  tbb_executor(4)->run(400, [&](std::int64_t i) {
    const Tensor y = step(i % 100).out;
    if (!test::same_bits(y, expected[static_cast<std::size_t>(i % 100)])) ADD_FAILURE() << i;
  });
}

}  // namespace
}  // namespace treadle
