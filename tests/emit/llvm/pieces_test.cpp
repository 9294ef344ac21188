// A mod in pieces computes the bits of the same mod in one, and its code grows with its nodes alone.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <llvm/IR/Module.h>

#include <bit>
#include <limits>

#include "emit/llvm/emit.h"
#include "ir/parse.h"
#include "jit/inspect.h"
#include "mod_runner.h"
#include "passes/derive.h"
#include "plan/score_form.h"
#include "treadle/tensor.h"

namespace treadle::test {
namespace {

constexpr plan::PieceSize never{.whole = std::numeric_limits<std::int32_t>::max()};
constexpr int piece_length = 60;

// Reads of every form, values of every level, and all over one another.
std::string large_text(int n) {
  std::string text = "a0 = score; i0 = ids[kv]; j0 = q;";
  for (int i = 0; i < n; ++i) {
    text += fmt::format("i{} = (i{} * 3 + {}) % 40;", i + 1, i, i);
    text += fmt::format("j{} = (j{} + {} * h) % 50;", i + 1, i, i);
    text += fmt::format(
        "a{} = where(i{} < j{}, tanh(a{} * 0.5), a{} - 0.25) + bias[q, kv] * {}.5 + "
        "bias[kv, q] + table[q - kv + {}] - table[{} - q] + table[i{}] * slope[h] + bias[j{}, "
        "i{}];",
        i + 1, i + 1, i + 1, i, i, i % 3, piece_length, piece_length + i % 5, i, i + 1, i + 1);
  }
  return text + fmt::format("a{}", n);
}

const std::vector<ir::Slot> large_slots{{"ids", DType::i32, 1},
                                        {"bias", DType::f32, 2},
                                        {"table", DType::f32, 1},
                                        {"slope", DType::f32, 1}};

// Of a name, since a graph has its slots in the order of its reads.
Tensor memory_of(const std::string& name) {
  if (name == "ids") {
    Tensor ids(DType::i32, {piece_length});
    for (int i = 0; i < piece_length; ++i) ids.at<std::int32_t>({i}) = i * 7 % 40;
    return ids;
  }
  const std::int64_t size = name == "bias" ? piece_length * piece_length : 2 * piece_length;
  Tensor values(DType::f32, name == "bias" ? Dims{piece_length, piece_length} : Dims{size});
  for (std::int64_t i = 0; i < size; ++i)
    values.data<float>()[i] = static_cast<float>(i * 37 % 101) * 0.01F - 0.5F;
  return values;
}

void expect_same_bits(const Outcomes& a, const Outcomes& b) {
  EXPECT_EQ(a.integers, b.integers);
  EXPECT_EQ(a.poison, b.poison);
  ASSERT_EQ(a.reals.size(), b.reals.size());
  for (std::size_t output = 0; output < a.reals.size(); ++output)
    for (std::size_t i = 0; i < a.reals[output].size(); ++i)
      ASSERT_EQ(std::bit_cast<std::uint64_t>(a.reals[output][i]),
                std::bit_cast<std::uint64_t>(b.reals[output][i]))
          << "pair " << i;
}

// Just above the size that is still whole, and with pieces of the size that they have.
TEST(PiecesOfMods, GiveTheBitsOfTheWhole) {
  const ir::Graph graph = ir::parse(large_text(8), large_slots);
  ASSERT_GT(plan::weight_of(graph), plan::PieceSize().whole);
  ASSERT_LT(plan::weight_of(graph), plan::PieceSize().whole * 5 / 4);
  std::vector<Tensor> memory;
  for (const ir::Slot& slot : graph.slots()) memory.push_back(memory_of(slot.name));
  const std::vector<ConstView> views(memory.begin(), memory.end());
  struct Case {
    DType compute;
    plan::Reads reads;
    bool consecutive;
  };
  const std::vector<Case> cases{{DType::f32, plan::Reads::proven, true},
                                {DType::f32, plan::Reads::proven, false},
                                {DType::f32, plan::Reads::clamped, true},
                                {DType::f64, plan::Reads::checked, true}};
  for (const plan::Target& target : targets_here())
    for (const auto& [compute, reads, consecutive] : cases) {
      Setting setting{.target = target, .compute = compute, .real = compute, .vectors = 3};
      setting.facts = {.narrow = compute == DType::f32,
                       .reads = reads,
                       .consecutive = consecutive,
                       .unit_stride = unit_strides(views)};
      SCOPED_TRACE(to_text(setting));
      Tile tile{.h = 2};
      for (int i = 0; i < setting.width() - 1; ++i) tile.q.push_back(i + 1);
      for (int i = 0; i < 21; ++i) tile.keys.push_back(i < 10 ? i : 2 * i);
      for (std::int64_t i = 0; i < tile.pairs(); ++i)
        tile.score.push_back(static_cast<float>(0.37 * static_cast<double>(i % 101) - 15));
      const ModRunner cut(graph, setting);
      setting.pieces = never;
      const ModRunner whole(graph, setting);
      expect_same_bits(cut(tile, views), whole(tile, views));
      if (HasFailure()) return;
    }
}

struct Sizes {
  std::size_t instructions = 0, largest = 0;  // of all functions, and of a piece
  std::size_t code = 0;                       // bytes of machine code and all around it
};

Sizes sizes_of(emit::llvm::Module module, const plan::Target& target) {
  Sizes sizes;
  for (const llvm::Function& function : *module.module) {
    sizes.instructions += function.getInstructionCount();
    const bool is_piece = function.getName().starts_with("piece");
    if (is_piece)
      sizes.largest = std::max<std::size_t>(sizes.largest, function.getInstructionCount());
  }
  sizes.code = jit::object_of(std::move(module), target).size();
  return sizes;
}

std::string text_of_terms(int n) {
  std::string text = "score";
  for (int i = 0; i < n; ++i) text += fmt::format(" + {}.5 * max(float(q - {} * kv), score)", i, i);
  return text;
}

emit::llvm::Module forward_of(const ir::Graph& graph, const plan::Target& target) {
  const plan::ScoreForm form = plan::score_form(graph);
  return emit::llvm::emit(
      plan::ForwardKernelSpec{.plan = plan::plan_tile(target, DType::f32, 8, 8, 3),
                              .score = form,
                              .score_facts = {.narrow = true, .reads = plan::Reads::proven},
                              .mask = {},
                              .mask_facts = {}});
}

emit::llvm::Module backward_of(const ir::Graph& graph, const plan::Target& target) {
  const plan::ScoreForm form = plan::score_form(graph);
  return emit::llvm::emit(
      plan::BackwardKernelSpec{.plan = plan::plan_tile(target, DType::f32, 8, 8, 3),
                               .score = form,
                               .score_facts = {.narrow = true, .reads = plan::Reads::proven},
                               .derivative = passes::derive(graph, {}),
                               .derivative_facts = {.narrow = true, .reads = plan::Reads::proven},
                               .mask = {},
                               .mask_facts = {}});
}

// A code generator takes time in proportion to functions of one size. So twice the terms are twice
// the instructions, and no function is larger than those of half the terms.
TEST(PiecesOfMods, AreMoreAndNotLarger) {
  const plan::Target target = plan::find_target("haswell");
  for (const auto make : {forward_of, backward_of}) {
    std::vector<Sizes> sizes;
    for (const int n : {500, 1000, 2000})
      sizes.push_back(sizes_of(make(ir::parse(text_of_terms(n), {}), target), target));
    const std::size_t most = sizes[1].instructions - sizes[0].instructions;
    EXPECT_NEAR(static_cast<double>(sizes[2].instructions - sizes[1].instructions),
                2.0 * static_cast<double>(most), 0.05 * static_cast<double>(most));
    EXPECT_NEAR(static_cast<double>(sizes[2].code - sizes[1].code),
                2.0 * static_cast<double>(sizes[1].code - sizes[0].code),
                0.1 * static_cast<double>(sizes[1].code));
    EXPECT_EQ(sizes[2].largest, sizes[0].largest);
    EXPECT_LT(sizes[2].largest, 10U * static_cast<std::size_t>(plan::PieceSize().piece));
  }
}

TEST(PiecesOfMods, AreOneFunctionForAllVectors) {
  const plan::Target target = plan::find_target("haswell");
  const ir::Graph graph = ir::parse(text_of_terms(200), {});
  const auto functions = [&](int vectors) {
    const emit::llvm::Module module =
        emit_mod(graph, {.target = target, .facts = {.narrow = true}, .vectors = vectors});
    return module.module->size();
  };
  EXPECT_EQ(functions(1), functions(3));
  EXPECT_GT(functions(1), 3U);
}

}  // namespace
}  // namespace treadle::test
