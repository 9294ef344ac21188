#include "mod_runner.h"

#include <fmt/format.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <span>

#include "fuzz.h"
#include "guarded.h"
#include "jit/engine.h"
#include "jit/inspect.h"

namespace treadle::test {
namespace {

using emit::llvm::Builder;
using llvm::Value;

// What the kernel is called with: words of 8 bytes.
struct Arguments {
  const std::int64_t* words = nullptr;
  std::int64_t b = 0, h = 0;
  const std::int32_t* q = nullptr;       // [width], the last one repeated
  const std::int32_t* active = nullptr;  // [width]
  const std::int32_t* keys = nullptr;
  std::int64_t count = 0;
  void* scratch = nullptr;
  const double* score = nullptr;  // [count][width]
  const double* grad = nullptr;
  double* reals = nullptr;           // [output][count][width]
  std::int64_t* integers = nullptr;  // the same
  std::uint8_t* poison = nullptr;    // the same
  void* frame = nullptr;
};
constexpr std::int64_t most_keys = 1 << 15;

plan::ModPlan plan_of(const ir::Graph& graph, const Setting& setting) {
  return plan::plan_mod(graph, setting.facts, {}, setting.pieces);
}

class Emitter {
 public:
  Emitter(llvm::Function* function, const ir::Graph& graph, const Setting& setting)
      : build_(function, setting.target, setting.compute),
        graph_(graph),
        setting_(setting),
        arguments_(function->getArg(0)),
        words_(argument(0)),
        mod_(build_, plan_of(graph, setting),
             {.real = setting.real,
              .captures = words_,
              .vectors = setting.vectors,
              .frame = argument(13)}) {}

  void emit() {
    llvm::Type* int32 = build_.getInt32Ty();
    Value* count = argument(6, build_.getInt64Ty());
    mod_.head(build_.CreateTrunc(argument(1, build_.getInt64Ty()), int32),
              build_.CreateTrunc(argument(2, build_.getInt64Ty()), int32));
    emit::llvm::Values q, active;
    for (int v = 0; v < setting_.vectors; ++v) {
      Value* at = build_.index(v * build_.lanes());
      q.push_back(build_.load(build_.vector(int32), build_.element(int32, argument(3), at)));
      Value* flags = build_.load(build_.vector(int32), build_.element(int32, argument(4), at));
      active.push_back(build_.CreateIsNotNull(flags));
    }
    mod_.queries(q, active);
    Value* keys = argument(5);
    mod_.stage(keys, count, most_keys, argument(7));
    build_.loop(build_.index(0), count, 1, [&](Value* i) {
      mod_.key(build_.load(int32, build_.element(int32, keys, i)), i);
      for (int v = 0; v < setting_.vectors; ++v) pair(i, v, count);
    });
    build_.CreateRetVoid();
  }

 private:
  Value* argument(int number) { return argument(number, build_.getPtrTy()); }
  Value* argument(int number, llvm::Type* type) {
    Value* at = build_.element(build_.getInt64Ty(), arguments_, build_.index(number));
    return build_.CreateAlignedLoad(type, at, llvm::Align(8));
  }

  void pair(Value* i, int v, Value* count) {
    const auto width = setting_.width();
    Value* at = build_.CreateAdd(build_.CreateMul(i, build_.index(width)),
                                 build_.index(v * build_.lanes()));
    llvm::Type* real = build_.getDoubleTy();
    llvm::Type* single = setting_.real == DType::f64 ? build_.getDoubleTy() : build_.getFloatTy();
    const auto given = [&](ir::Input input, int number) -> Value* {
      if (!graph_.uses(input)) return nullptr;
      Value* value = build_.load(build_.vector(real), build_.element(real, argument(number), at));
      return build_.CreateFPCast(value, build_.vector(single));
    };
    const auto results = mod_.pair(v, given(ir::Input::score, 8), given(ir::Input::grad, 9));
    for (std::size_t output = 0; output < results.size(); ++output) {
      Value* first =
          build_.CreateMul(count, build_.index(static_cast<std::int64_t>(output) * width));
      Value* place = build_.CreateAdd(first, at);
      const auto& [value, poison] = results[output];
      switch (graph_[graph_.outputs()[output]].type) {
        case ir::Type::real:
          store(build_.CreateFPCast(build_.splat(value), build_.vector(real)), 10, place);
          break;
        case ir::Type::integer:
          store(build_.CreateSExt(build_.splat(value), build_.vector(build_.getInt64Ty())), 11,
                place);
          break;
        case ir::Type::boolean:
          store(build_.CreateZExt(build_.splat(value), build_.vector(build_.getInt64Ty())), 11,
                place);
          break;
      }
      Value* bad = poison == nullptr ? build_.getFalse() : poison;
      store(build_.CreateZExt(build_.splat(bad), build_.vector(build_.getInt8Ty())), 12, place);
    }
  }

  void store(Value* value, int number, Value* place) {
    build_.store(value, build_.element(value->getType()->getScalarType(), argument(number), place));
  }

  Builder build_;
  const ir::Graph& graph_;
  const Setting& setting_;
  Value* arguments_;
  Value* words_;
  emit::llvm::ModEmitter mod_;
};

// The memory that a view can reach.
std::span<std::byte> bytes_of(const ConstView& view) {
  std::int64_t low = 0, high = 1;
  for (int axis = 0; axis < view.rank(); ++axis) {
    const std::int64_t reach = (view.size(axis) - 1) * view.stride(axis);
    (reach < 0 ? low : high) += reach;
  }
  const auto size = static_cast<std::int64_t>(size_of(view.dtype()));
  auto* data = static_cast<std::byte*>(const_cast<void*>(view.data()));
  return {data + low * size, static_cast<std::size_t>((high - low) * size)};
}

jit::Engine& engine() {
  static jit::Engine engine{jit::EngineOptions{}};
  return engine;
}

}  // namespace

std::string to_text(const Setting& setting) {
  return fmt::format("{} x {} lanes of {}, {} vectors, {}{}{}, evaluated in {}, in pieces of {}",
                     setting.target.name, setting.lanes(), name_of(setting.compute),
                     setting.vectors, setting.facts.narrow ? "narrow" : "wide",
                     setting.facts.reads == plan::Reads::checked   ? ", checked"
                     : setting.facts.reads == plan::Reads::clamped ? ", clamped"
                                                                   : "",
                     setting.facts.consecutive ? ", consecutive" : "", name_of(setting.real),
                     setting.pieces.piece);
}

std::vector<plan::Target> targets_here() {
  std::vector<plan::Target> targets;
  for (const std::string& name : plan::runnable_targets()) {
    // The same IR as for icelake-server; tests/run/targets_test.cpp runs what LLVM makes of it.
    if (name != "sapphirerapids") targets.push_back(plan::find_target(name));
  }
  for (const plan::Target& target : std::vector(targets)) {
    if (target.name != "haswell") continue;
    targets.push_back(target);
    targets.back().vector_bytes = 64;
  }
  return targets;
}

std::vector<plan::Target> targets_in_turn(std::uint64_t number) {
  std::vector<plan::Target> targets = targets_here();
  if (fuzz_size() == FuzzSize::full) return targets;
  return {targets[(number + fuzz_seed(0)) % targets.size()]};
}

std::vector<std::int64_t> words_of(const std::vector<ConstView>& views) {
  std::vector<std::int64_t> words;
  for (const ConstView& view : views) {
    words.push_back(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data())));
    words.insert(words.end(), view.shape().begin(), view.shape().end());
    words.insert(words.end(), view.strides().begin(), view.strides().end());
  }
  return words;
}

std::vector<bool> unit_strides(const std::vector<ConstView>& views) {
  std::vector<bool> units;
  for (const ConstView& view : views)
    units.push_back(view.rank() > 0 && view.strides().back() == 1);
  return units;
}

ModRunner::ModRunner(const ir::Graph& graph, const Setting& setting)
    : graph_(graph),
      setting_(setting),
      scratch_(plan::scratch_of(plan_of(graph, setting), setting.lanes())) {
  const std::vector<std::string> here = plan::runnable_targets();
  if (std::ranges::find(here, setting.target.name) == here.end()) {
    emulator_ =
        std::make_shared<Emulator>(jit::object_of(emit_mod(graph, setting), setting.target));
    return;
  }
  static int number = 0;
  const base::Hash key = base::Hasher().add("mod_runner").add(number++).finish();
  kernel_ = engine().code(key, setting.target, [&] { return emit_mod(graph, setting); }, "mod");
}

emit::llvm::Module emit_mod(const ir::Graph& graph, const Setting& setting) {
  emit::llvm::Module made = emit::llvm::make_module("mod", setting.target);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(*made.context),
                                       {llvm::PointerType::get(*made.context, 0)}, false);
  Emitter emitter(emit::llvm::make_function(*made.module, "mod", type, setting.target), graph,
                  setting);
  emitter.emit();
  return made;
}

Outcomes ModRunner::operator()(const Tile& tile, const std::vector<ConstView>& views) const {
  const auto width = static_cast<std::size_t>(setting_.width());
  const std::size_t count = tile.keys.size();
  const std::size_t queries = tile.q.size();
  std::vector<std::int32_t> q(width, tile.q.back()), active(width, 0);
  for (std::size_t i = 0; i < queries; ++i) {
    q[i] = tile.q[i];
    active[i] = 1;
  }
  const auto padded = [&](const std::vector<double>& values) {
    std::vector<double> all(count * width, 0.5);
    for (std::size_t key = 0; key < count && !values.empty(); ++key) {
      for (std::size_t i = 0; i < queries; ++i) all[key * width + i] = values[key * queries + i];
    }
    return all;
  };
  std::vector<double> score = padded(tile.score), grad = padded(tile.grad);
  const std::size_t outputs = graph_.outputs().size();
  const std::size_t size = outputs * count * width;
  std::vector<double> reals(size);
  std::vector<std::int64_t> integers(size);
  std::vector<std::uint8_t> poison(size);
  std::vector<std::int64_t> words = words_of(views);
  std::vector<std::int32_t> keys = tile.keys;
  // As large as promised, and no larger.
  std::vector<std::byte> scratch(static_cast<std::size_t>(scratch_.staged) * most_keys * width);
  const Guarded frame(static_cast<std::size_t>(scratch_.frame), Guarded::At::end);
  Arguments arguments{.words = words.data(),
                      .b = tile.b,
                      .h = tile.h,
                      .q = q.data(),
                      .active = active.data(),
                      .keys = keys.data(),
                      .count = static_cast<std::int64_t>(count),
                      .scratch = scratch.data(),
                      .score = score.data(),
                      .grad = grad.data(),
                      .reals = reals.data(),
                      .integers = integers.data(),
                      .poison = poison.data(),
                      .frame = frame.data()};
  if (emulator_) {
    const auto piece = [](auto& values) -> Emulator::Piece {
      return {std::as_writable_bytes(std::span(values))};
    };
    std::vector<Emulator::Piece> pieces{{std::as_writable_bytes(std::span(&arguments, 1)), true},
                                        {piece(words).memory, true}};
    for (const ConstView& view : views) pieces.push_back({bytes_of(view)});
    for (auto* values : {&q, &active, &keys}) pieces.push_back(piece(*values));
    for (auto* values : {&score, &grad, &reals}) pieces.push_back(piece(*values));
    pieces.push_back(piece(scratch));
    pieces.push_back({{frame.data(), static_cast<std::size_t>(scratch_.frame)}});
    pieces.push_back(piece(integers));
    pieces.push_back(piece(poison));
    (*emulator_)(pieces);
  } else {
    reinterpret_cast<void (*)(const Arguments*)>(const_cast<void*>(kernel_.get()))(&arguments);
  }

  Outcomes outcomes;
  for (std::size_t output = 0; output < outputs; ++output) {
    const auto pick = [&](const auto& from) {
      auto picked = from;
      picked.clear();
      for (std::size_t key = 0; key < count; ++key) {
        for (std::size_t i = 0; i < queries; ++i) {
          picked.push_back(from[(output * count + key) * width + i]);
        }
      }
      return picked;
    };
    outcomes.reals.push_back(pick(reals));
    outcomes.integers.push_back(pick(integers));
    outcomes.poison.push_back(pick(poison));
  }
  return outcomes;
}

}  // namespace treadle::test
