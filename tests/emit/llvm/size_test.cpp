// The size of a kernel grows with the size of its mod, and no faster.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <llvm/IR/Module.h>

#include <functional>

#include "emit/llvm/emit.h"
#include "ir/parse.h"
#include "mod_runner.h"
#include "passes/derive.h"
#include "plan/score_form.h"
#include "small_stack.h"

namespace treadle::test {
namespace {

plan::ModFacts every_form(const ir::Graph& graph) {
  return {.narrow = true,
          .reads = plan::Reads::proven,
          .consecutive = true,
          .unit_stride = std::vector<bool>(graph.slots().size(), true)};
}

std::size_t instructions_of(const emit::llvm::Module& module) {
  return module.module->getInstructionCount();
}

std::size_t mod_instructions(const ir::Graph& graph) {
  return instructions_of(emit_mod(
      graph, {.target = plan::find_target("haswell"), .facts = every_form(graph), .vectors = 3}));
}

// A graph that as a tree is 3^n large: a1 = a0 + a0 - a0; a2 = ...
std::string levels(const std::string& first, int n) {
  std::string text = "a0 = " + first + ";";
  for (int i = 0; i < n; ++i) text += fmt::format("a{} = a{} + a{} - a{};", i + 1, i, i, i);
  return text;
}

const std::vector<ir::Slot> size_slots{{"t", DType::f32, 1}, {"u", DType::f32, 2}};

// Of each step from n to n + 1, where all are alike.
std::size_t growth(const std::function<std::size_t(int)>& size, int n) {
  const std::size_t once = size(n), twice = size(2 * n);
  EXPECT_GT(twice, once);
  return (twice - once) / static_cast<std::size_t>(n);
}

TEST(KernelSize, OfSharedPartsOfIndices) {
  for (const std::string first : {"q", "kv", "-q", "q - kv", "kv - q"}) {
    for (const std::string read : {"score + t[a{}]", "score + u[q, a{}]", "score + u[kv, a{}]"}) {
      const auto size = [&](int n) {
        const std::string text = levels(first, n) + fmt::format(fmt::runtime(read), n);
        return mod_instructions(ir::parse(text, size_slots));
      };
      EXPECT_LE(growth(size, 40), 2u * 3 * 2) << first << " " << read;
    }
  }
}

TEST(KernelSize, OfBackwardKernels) {
  for (const std::string first : {"q", "kv", "q - kv"}) {
    const auto size = [&](int n) {
      const ir::Graph graph =
          ir::parse(levels(first, n) + fmt::format("score + t[a{}]", n), size_slots);
      const ir::Joint joint = passes::derive(graph, {"t"});
      const plan::ScoreForm form = plan::score_form(graph);
      return instructions_of(emit::llvm::emit(plan::BackwardKernelSpec{
          .plan = plan::plan_tile(plan::find_target("haswell"), DType::f32, 8, 8, 3),
          .score = form,
          .score_facts = every_form(form.graph),
          .derivative = joint,
          .derivative_facts = every_form(joint.graph),
          .masked = false,
          .mask = {},
          .mask_facts = {}}));
    };
    EXPECT_LE(growth(size, 40), 4u * 3 * 2) << first;
  }
}

TEST(KernelSize, OfManyTerms) {
  const auto size = [](int n) {
    std::string text = "score";
    for (int i = 0; i < n; ++i) text += fmt::format(" + {}.5 * float(q - {} * kv)", i, i);
    return mod_instructions(ir::parse(text, {}));
  };
  EXPECT_LE(growth(size, 100), 10u * 3);
}

TEST(KernelSize, OfManyReads) {
  for (const std::string index : {"q, kv", "kv, q", "q, kv * 2"}) {
    const auto size = [&](int n) {
      std::string text = "score";
      std::vector<ir::Slot> slots;
      for (int i = 0; i < n; ++i) {
        text += fmt::format(" + c{}[{}]", i, index);
        slots.push_back({fmt::format("c{}", i), DType::f32, 2});
      }
      return mod_instructions(ir::parse(text, slots));
    };
    EXPECT_LE(growth(size, 20), 40u * 3) << index;
    EXPECT_LE(growth(size, 60), 40u * 3) << index;
  }
}

// No step of emitting goes as deep as the graph is.
TEST(KernelSize, OfADeepGraphNeedsNoStack) {
  const ir::Graph graph = ir::parse(levels("q - kv", 10000) + "score + t[a10000]", size_slots);
  on_small_stack(512 << 10, [&] { EXPECT_GT(mod_instructions(graph), 10000u); });
}

}  // namespace
}  // namespace treadle::test
