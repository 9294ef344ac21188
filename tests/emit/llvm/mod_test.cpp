// What a reader of mod.h expects, one thing at a time.
#include "emit/llvm/mod.h"

#include <gtest/gtest.h>

#include "agreement.h"
#include "ir/builder.h"
#include "ir/parse.h"
#include "jit/engine.h"
#include "jit/inspect.h"
#include "treadle/tensor.h"

namespace treadle::test {
namespace {

const std::vector<ir::Slot> slots{
    {"bias", DType::f32, 3}, {"doc", DType::i32, 1}, {"order", DType::i64, 1}};

TEST(Mod, ReadsThroughIndicesThatAreRead) {
  Tensor order(DType::i64, {64}), doc(DType::i32, {64}), bias(DType::f32, {64, 64, 4});
  for (int i = 0; i < 64; ++i) {
    const auto at = static_cast<std::size_t>(i);
    order.data<std::int64_t>()[at] = i * 29 % 64;
    doc.data<std::int32_t>()[at] = i / 5;
  }
  for (std::size_t i = 0; i < bias.data<float>().size(); ++i)
    bias.data<float>()[i] = static_cast<float>(i);
  for (const plan::Target& target : targets_here()) {
    for (const std::string text :
         {"doc[order[q]] == doc[order[kv]]", "bias[doc[q], order[kv], h] + score",
          "doc[order[order[q]] // 2]", "bias[order[q], order[kv], 1]",
          "bias[order[kv], order[q], doc[q] % 4]"}) {
      const ir::Graph graph = ir::parse(text, slots);
      std::vector<ConstView> views;
      for (const ir::Slot& slot : graph.slots()) {
        views.push_back(slot.name == "order" ? order : slot.name == "doc" ? doc : bias);
      }
      Tile tile{.h = 1};
      for (int i = 0; i < 11; ++i) tile.q.push_back(30 + i);
      for (int i = 0; i < 20; ++i) tile.keys.push_back(2 * i);
      tile.score.assign(static_cast<std::size_t>(tile.pairs()), 0.25);
      Setting setting{.target = target, .vectors = 3};
      setting.facts = facts_of(graph, tile, views);
      EXPECT_EQ(setting.facts.reads, plan::Reads::proven);
      expect_agreement(graph, setting, tile, views);
    }
  }
}

TEST(Mod, ReturnsAScalarWhereNoLaneDiffers) {
  const plan::Target target = plan::find_target("x86-64");
  emit::llvm::Module module = emit::llvm::make_module("scalar", target);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(*module.context), {}, false);
  emit::llvm::Builder build(emit::llvm::make_function(*module.module, "f", type, target), target,
                            DType::f32);
  const ir::Graph graph = ir::parse("kv % 3 == h", {});
  emit::llvm::ModEmitter mod(
      build, plan::plan_mod(graph, {.narrow = true, .reads = plan::Reads::proven}), {});
  mod.head(build.getInt32(1), build.getInt32(2));
  llvm::Value* q = build.splat(build.getInt32(7));
  mod.queries({q}, {build.splat(build.getTrue())});
  mod.key(build.CreateAdd(build.getInt32(5), build.getInt32(6)), build.index(0));
  const auto results = mod.pair(0, nullptr);
  EXPECT_TRUE(results.at(0).value->getType()->isIntegerTy(1));
  EXPECT_EQ(results.at(0).poison, nullptr);
}

std::string assembly(const ir::Graph& graph, const plan::Target& target,
                     const plan::ModFacts& facts) {
  return jit::assembly_of(emit_mod(graph, {.target = target, .facts = facts, .vectors = 2}),
                          target);
}

// Machines that are not here: at least the code can be made.
TEST(Mod, CompilesForEveryTarget) {
  ir::Builder make;
  std::vector<ir::NodeId> outputs;
  const ir::NodeId q = make.input(ir::Input::q);
  const ir::NodeId kv = make.input(ir::Input::kv);
  for (const ir::OpInfo& row : ir::op_table()) {
    if (row.rule == ir::Rule::leaf) continue;
    const ir::NodeId truth = make(ir::Op::lt, q, kv);
    const ir::NodeId real = make.load({"bias", DType::bf16, 2}, {q, kv});
    const bool reals = row.rule == ir::Rule::real || row.rule == ir::Rule::rounding ||
                       row.rule == ir::Rule::test || row.op == ir::Op::to_int;
    std::vector<ir::NodeId> in(static_cast<std::size_t>(row.arity), row.rule == ir::Rule::logical
                                                                        ? truth
                                                                    : reals ? real
                                                                            : q);
    if (row.arity > 1)
      in.back() = row.rule == ir::Rule::logical ? truth : reals ? make.input(ir::Input::score) : kv;
    if (row.rule == ir::Rule::choice) in[0] = truth;
    outputs.push_back(make.apply(row.op, in));
  }
  const ir::Graph graph = make.finish(outputs);
  for (const char* name : {"x86-64", "haswell", "skylake-avx512", "icelake-server",
                           "sapphirerapids", "aarch64", "neoverse-n1"}) {
    for (const plan::Reads reads :
         {plan::Reads::proven, plan::Reads::clamped, plan::Reads::checked}) {
      const plan::Target target = plan::find_target(name);
      const std::string text = assembly(graph, target,
                                        {.narrow = reads != plan::Reads::checked,
                                         .reads = reads,
                                         .consecutive = true,
                                         .unit_stride = {true}});
      EXPECT_TRUE(text.find("mod:") != text.npos) << name;
      // Only AVX-512 has registers for these.
      const bool wide = text.find("_ZGVeN16v_logf") != text.npos;
      EXPECT_EQ(wide, target.libmvec > 0 && target.avx512) << name;
    }
  }
}

}  // namespace
}  // namespace treadle::test
