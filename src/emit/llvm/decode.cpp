// The decode kernel: a few rows of queries over one block of keys, with the keys in the lanes.
//
// In: a spec. Out: a module whose function `kernel` continues m, l and O of each row. Read
// DecodeEmitter::emit() first: it lists the steps.
//
// With K, V the block's keys and values, q a row's query (multiplied with the scale):
//
//   s_k = sum_d K[k][d] q[d]                      multiply_keys
//   s   = log2(e) * mod(s), -inf where hidden     apply_mods
//   m'  = max(m, max_k s_k)                       weigh
//   p_k = 2^(s_k - ceil m')                       weigh
//   l   = l * 2^(ceil m - ceil m') + sum_k p_k          weigh, add_values
//   p_k = 0 where the pair is dropped                   drop
//   O   = O * 2^(ceil m - ceil m') + sum_k p_k V[k]     weigh, add_values
//
// Every sum has the order that the forward kernel gives it (emit/llvm/forward.cpp), so it has the
// same bits; only what lies in the lanes differs.
#include "emit/llvm/decode.h"

#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "emit/llvm/decode_products.h"
#include "emit/llvm/dropout.h"
#include "emit/llvm/exp2.h"
#include "emit/llvm/kernel_function.h"
#include "emit/llvm/mod.h"
#include "emit/llvm/scale.h"
#include "emit/llvm/tile.h"

namespace treadle::emit::llvm {
namespace {

using plan::DecodeKernelArgs;

constexpr double negative_infinity = -std::numeric_limits<double>::infinity();

class DecodeEmitter {
 public:
  explicit DecodeEmitter(const plan::DecodeKernelSpec& spec)
      : spec_(spec),
        kernel_("decode", spec.target, spec.compute),
        build_(kernel_.build()),
        memory_(build_, spec, kernel_.args()),
        maximum_(build_.CreateAlloca(build_.reals())) {}

  Module emit() &&;

 private:
  void apply_mods();
  void weigh();
  void drop();

  Value* modified(Value* row, Value* score, Value* kv, Value* active);
  Value* larger_lane(Value* lanes);
  Value* block_maximum(Value* row);
  void weigh_row(Value* row);
  void rescale(Value* row, Value* change);

  template <class T>
  Value* arg(T DecodeKernelArgs::* member) {
    return kernel_.args()[member];
  }
  Value* i32_at(Value* array, Value* at) {
    ::llvm::Type* int32 = build_.getInt32Ty();
    return build_.CreateLoad(int32, build_.element(int32, array, at));
  }
  void for_each_row(const std::function<void(Value*)>& body) {
    build_.loop(build_.index(0), arg(&DecodeKernelArgs::rows), 1, body);
  }
  // kv of a group's keys.
  Value* positions_of(Value* group) {
    ::llvm::Type* int32 = build_.getInt32Ty();
    Value* all = arg(&DecodeKernelArgs::key_positions);
    return build_.load(build_.vector(int32), build_.element(int32, all, memory_.first_key(group)));
  }
  // Lanes of a group that hold a key.
  Value* active(Value* group);

  const plan::DecodeKernelSpec& spec_;
  KernelFunction<DecodeKernelArgs> kernel_;
  Builder& build_;
  DecodeMemory memory_;
  Value* maximum_;  // address: of a row's scores
};

Module DecodeEmitter::emit() && {
  multiply_keys(memory_);
  apply_mods();
  weigh();
  if (spec_.dropout) drop();
  add_values(memory_);
  return std::move(kernel_).finish();
}

Value* DecodeEmitter::active(Value* group) {
  std::vector<::llvm::Constant*> numbers;
  for (int i = 0; i < build_.lanes(); ++i)
    numbers.push_back(build_.getInt32(static_cast<std::uint32_t>(i)));
  Value* left = build_.CreateNSWSub(arg(&DecodeKernelArgs::count), memory_.first_key(group));
  return build_.CreateICmpSLT(::llvm::ConstantVector::get(numbers),
                              build_.splat(build_.CreateTrunc(left, build_.getInt32Ty())));
}

// --- mods ----------------------------------------------------------------------------------------

// The score of a vector of keys after mod and mask.
Value* DecodeEmitter::modified(Value* row, Value* score, Value* kv, Value* active) {
  Value* b = i32_at(arg(&DecodeKernelArgs::entries), row);
  Value* h = i32_at(arg(&DecodeKernelArgs::heads), row);
  Value* q = i32_at(arg(&DecodeKernelArgs::positions), row);
  std::int64_t frame = 0;
  const auto prepare = [&](const ir::Graph& graph, const plan::ModFacts& facts, DType real,
                           Value* captures) {
    plan::ModPlan plan = plan::plan_mod(graph, facts, {}, spec_.mods, plan::Stages::nothing);
    const std::int64_t bytes = plan::scratch_of(plan, build_.lanes()).frame;
    Value* at = bytes == 0 ? nullptr
                           : build_.element(build_.getInt8Ty(), arg(&DecodeKernelArgs::frame),
                                            build_.index(frame));
    frame += bytes;
    auto mod = std::make_unique<ModEmitter>(
        build_, std::move(plan), ModOptions{.real = real, .captures = captures, .frame = at});
    mod->head(b, h);
    mod->queries({kv}, {active});  // q and kv are exchanged
    mod->key(q, build_.index(0));
    return mod;
  };
  if (spec_.score.kind != plan::ScoreForm::Kind::plain) {
    const auto mod = prepare(spec_.score.graph, spec_.score_facts, spec_.compute,
                             arg(&DecodeKernelArgs::score_captures));
    Value* poison = nullptr;  // there is none: see DecodeKernelSpec
    score = modified_score(build_, *mod, spec_.score.kind, 0, score, poison);
  }
  if (!spec_.masked) return score;
  const auto mask =
      prepare(spec_.mask, spec_.mask_facts, DType::f64, arg(&DecodeKernelArgs::mask_captures));
  Value* visible = build_.splat(mask->pair(0, nullptr).front().value);
  return build_.CreateSelect(visible, score, build_.numbers(negative_infinity));
}

void DecodeEmitter::apply_mods() {
  if (!spec_.masked && spec_.score.kind == plan::ScoreForm::Kind::plain) return;
  for_each_row([&](Value* row) {
    memory_.for_groups([&](Value* group) {
      Value* kv = positions_of(group);
      Value* address = memory_.scores_of(row, group);
      Value* score = build_.load(build_.reals(), address);
      build_.store(modified(row, score, kv, active(group)), address);
    });
  });
}

// --- weights -------------------------------------------------------------------------------------

void DecodeEmitter::weigh() {
  for_each_row([&](Value* row) { weigh_row(row); });
}

Value* DecodeEmitter::larger_lane(Value* lanes) {
  for (int width = build_.lanes() / 2; width >= 1; width /= 2) {
    ::llvm::SmallVector<int> other;
    for (int i = 0; i < build_.lanes(); ++i) other.push_back(i ^ width);
    lanes = build_.larger(lanes, build_.CreateShuffleVector(lanes, other));
  }
  return build_.CreateExtractElement(lanes, std::uint64_t{0});
}

// Of two zeros the first key's counts, as in the forward; of equal numbers but zeros all are alike.
Value* DecodeEmitter::block_maximum(Value* row) {
  build_.store(build_.numbers(negative_infinity), maximum_);
  memory_.for_groups([&](Value* group) {
    Value* score = build_.load(build_.reals(), memory_.scores_of(row, group));
    score = build_.CreateSelect(active(group), score, build_.numbers(negative_infinity));
    build_.store(build_.larger(score, build_.load(build_.reals(), maximum_)), maximum_);
  });
  Value* largest = larger_lane(build_.load(build_.reals(), maximum_));
  build_.store(largest, maximum_);
  const auto one_by_one = [&] {
    Value* first = memory_.scores_of(row, build_.index(0));
    const auto larger = [&](Value* k, const Values& so_far) {
      Value* score = build_.CreateLoad(build_.real(), build_.element(build_.real(), first, k));
      return Values{build_.larger(score, so_far.front())};
    };
    build_.store(build_
                     .loop(build_.index(0), arg(&DecodeKernelArgs::count), 1,
                           {build_.number(negative_infinity)}, larger)
                     .front(),
                 maximum_);
  };
  build_.when(build_.CreateFCmpOEQ(largest, build_.number(0)), one_by_one, true);
  return build_.load(build_.real(), maximum_);
}

// Scores of a row become weights; what was summed before is rescaled if ceil m grew.
void DecodeEmitter::weigh_row(Value* row) {
  Value* block = block_maximum(row);
  Value* m_at = build_.element(build_.real(), arg(&DecodeKernelArgs::maximum), row);
  Value* old = build_.CreateLoad(build_.real(), m_at);
  Value* now = build_.larger(block, old);
  build_.CreateStore(now, m_at);
  // As vectors, whose arithmetic is the forward kernel's.
  const Growth grown = growth(build_, build_.splat(old), build_.splat(now));
  build_.when(build_.any(build_.CreateFCmpONE(grown.change, build_.numbers(0))),
              [&] { rescale(row, grown.change); });
  memory_.for_groups([&](Value* group) {
    Value* at = memory_.scores_of(row, group);
    build_.store(exp2_below(build_, build_.load(build_.reals(), at), grown.power), at);
  });
}

void DecodeEmitter::rescale(Value* row, Value* change) {
  Value* factors = scale_down(build_, build_.numbers(1), change);
  Value* factor = build_.CreateExtractElement(factors, std::uint64_t{0});
  const auto scale = [&](Value* address, bool vector) {
    Value* before = build_.load(vector ? build_.reals() : build_.real(), address);
    build_.store(build_.CreateFMul(before, vector ? factors : factor), address);
  };
  scale(build_.element(build_.real(), arg(&DecodeKernelArgs::weight), row), false);
  const std::int64_t whole = spec_.value_dim - spec_.value_dim % build_.lanes();
  build_.loop(build_.index(0), build_.index(whole), build_.lanes(),
              [&](Value* d) { scale(memory_.sums_of(row, d), true); });
  build_.loop(build_.index(whole), build_.index(spec_.value_dim), 1,
              [&](Value* d) { scale(memory_.sums_of(row, d), false); });
}

// What l adds up are weights that are not dropped yet.
void DecodeEmitter::drop() {
  DropoutBits bits(build_);
  bits.begin(arg(&DecodeKernelArgs::dropout));
  for_each_row([&](Value* row) {
    add_weights(memory_, row);
    const std::array<Value*, 3> bhq{i32_at(arg(&DecodeKernelArgs::entries), row),
                                    i32_at(arg(&DecodeKernelArgs::heads), row),
                                    i32_at(arg(&DecodeKernelArgs::positions), row)};
    memory_.for_groups([&](Value* group) {
      Value* at = memory_.scores_of(row, group);
      Value* weights = build_.load(build_.reals(), at);
      build_.store(kept_keys(build_, bits, weights, bhq, positions_of(group)), at);
    });
  });
}

}  // namespace

Module emit_decode(const plan::DecodeKernelSpec& spec) { return DecodeEmitter(spec).emit(); }

}  // namespace treadle::emit::llvm
