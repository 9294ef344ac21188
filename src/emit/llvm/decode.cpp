// The decode kernel: a few rows of queries over one block of keys, with the keys in the lanes.
//
// In: a spec. Out: a module whose function `kernel` continues m, l and O of each row. Read
// DecodeEmitter::emit() first: it lists the steps.
//
// With K, V the block's keys and values, q a row's query (multiplied with the scale):
//
//   s_k = sum_d K[k][d] q[d]                      turn_keys, multiply; d ascending, one sum
//   s   = log2(e) * mod(s), -inf where hidden     apply_mods
//   m'  = max(m, max_k s_k)                       take_maximum
//   p_k = 2^(s_k - ceil m')                       weigh
//   l   = l * 2^(ceil m - ceil m') + sum_k p_k    weigh; k ascending, one sum
//   O   = O * 2^(ceil m - ceil m') + sum_k p_k V[k]     add_values; k ascending, one sum per d
//
// Every sum has the order that the forward kernel gives it (emit/llvm/forward.cpp), so it has the
// same bits; only what lies in the lanes differs.
#include "emit/llvm/decode.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <numbers>
#include <utility>

#include "emit/llvm/convert.h"
#include "emit/llvm/exp2.h"
#include "emit/llvm/kernel_function.h"
#include "emit/llvm/mod.h"
#include "emit/llvm/scale.h"
#include "emit/llvm/transpose_vectors.h"

namespace treadle::emit::llvm {
namespace {

using plan::DecodeKernelArgs;

constexpr double negative_infinity = -std::numeric_limits<double>::infinity();

class DecodeEmitter {
 public:
  explicit DecodeEmitter(const plan::DecodeKernelSpec& spec);

  Module emit() &&;

 private:
  // Rows whose sums are in registers at once.
  static constexpr int rows_at_once = 4;

  void turn_keys();
  void multiply();
  void apply_mods();
  void weigh();
  void add_values();

  void turn_square(Value* group, Value* d);
  void turn_column(Value* group, Value* d);
  void multiply_rows(Value* first, int rows);
  Value* modified(Value* row, Value* score, Value* kv, Value* active);
  void weigh_row(Value* row);
  void add_rows(Value* first, int rows);
  void add_columns(Value* first, int rows, Value* d, int vectors);
  void add_column(Value* row, Value* d);

  // Calls body(first, rows) for all rows, some at a time.
  void for_rows(const std::function<void(Value*, int)>& body);
  // Calls body(group) for each vector's worth of keys.
  void for_groups(const std::function<void(Value*)>& body) {
    build_.loop(build_.index(0), groups_, 1, body);
  }

  template <class T>
  Value* arg(T DecodeKernelArgs::* member) {
    return kernel_.args()[member];
  }
  // Element `at` of row `row` of an array of floats.
  Value* float_at(Value* array, Value* row, std::int64_t width, Value* at) {
    return build_.element(build_.real(), array,
                          build_.CreateNSWAdd(build_.CreateNSWMul(row, build_.index(width)), at));
  }
  Value* scores_of(Value* row, Value* group) {
    return float_at(scores_, row, spec_.key_block,
                    build_.CreateNSWMul(group, build_.index(build_.lanes())));
  }
  Value* turned(Value* group, Value* d) {
    return float_at(turned_,
                    build_.CreateNSWAdd(build_.CreateNSWMul(group, build_.index(spec_.dim)), d),
                    build_.lanes(), build_.index(0));
  }
  Value* load_real(Value* address) { return build_.CreateLoad(build_.real(), address); }
  // The key at a place of a group; the last one beyond the end.
  Value* key_row(Value* group, int lane) {
    Value* place = build_.CreateNSWAdd(build_.CreateNSWMul(group, build_.index(build_.lanes())),
                                       build_.index(lane));
    place = build_.CreateBinaryIntrinsic(::llvm::Intrinsic::smin, place,
                                         build_.CreateNSWSub(count_, build_.index(1)));
    return build_.element(build_.getInt8Ty(), keys_, build_.CreateNSWMul(place, key_stride_));
  }
  Value* i32_at(Value* array, Value* at) {
    ::llvm::Type* int32 = build_.getInt32Ty();
    return build_.CreateLoad(int32, build_.element(int32, array, at));
  }
  // Some elements of a row of a tensor, in the compute type.
  Value* stored(Value* row, DType type, Value* at, bool vector) {
    ::llvm::Type* element = stored_type(build_, type);
    Value* loaded =
        build_.load(vector ? build_.vector(element) : element, build_.element(element, row, at));
    return from_stored(build_, loaded, type, spec_.compute);
  }
  // Asks for the same elements of a row of the next block, which mostly follows this one. No memory
  // need be there.
  void fetch_next(Value* row, Value* stride, DType type, Value* at) {
    Value* next = build_.CreateGEP(build_.getInt8Ty(), row, build_.CreateMul(count_, stride));
    build_.CreateIntrinsic(::llvm::Intrinsic::prefetch, {build_.getPtrTy()},
                           {build_.CreateGEP(stored_type(build_, type), next, at),
                            build_.getInt32(0), build_.getInt32(3), build_.getInt32(1)});
  }
  Value* any(Value* lanes) {
    const auto count = static_cast<unsigned>(build_.lanes());
    return build_.CreateICmpNE(build_.CreateBitCast(lanes, build_.getIntNTy(count)),
                               build_.getIntN(count, 0));
  }

  const plan::DecodeKernelSpec& spec_;
  KernelFunction<DecodeKernelArgs> kernel_;
  Builder& build_;
  Value *keys_, *key_stride_, *values_, *value_stride_, *count_, *rows_, *scores_, *turned_;
  Value* groups_;  // vectors' worth of keys
};

DecodeEmitter::DecodeEmitter(const plan::DecodeKernelSpec& spec)
    : spec_(spec),
      kernel_("decode", spec.target, spec.compute),
      build_(kernel_.build()),
      keys_(arg(&DecodeKernelArgs::keys)),
      key_stride_(arg(&DecodeKernelArgs::key_stride)),
      values_(arg(&DecodeKernelArgs::values)),
      value_stride_(arg(&DecodeKernelArgs::value_stride)),
      count_(arg(&DecodeKernelArgs::count)),
      rows_(arg(&DecodeKernelArgs::rows)),
      scores_(arg(&DecodeKernelArgs::scores)),
      turned_(arg(&DecodeKernelArgs::turned)) {
  Value* lanes = build_.index(build_.lanes());
  groups_ = build_.CreateUDiv(build_.CreateNSWAdd(count_, build_.index(build_.lanes() - 1)), lanes);
}

Module DecodeEmitter::emit() && {
  turn_keys();
  multiply();
  apply_mods();
  weigh();
  add_values();
  return std::move(kernel_).finish();
}

void DecodeEmitter::for_rows(const std::function<void(Value*, int)>& body) {
  Value* whole = build_.CreateAnd(rows_, build_.index(-rows_at_once));
  build_.loop(build_.index(0), whole, rows_at_once, [&](Value* r) { body(r, rows_at_once); });
  build_.loop(whole, rows_, 1, [&](Value* r) { body(r, 1); });
}

// --- scores --------------------------------------------------------------------------------------

void DecodeEmitter::turn_keys() {
  const std::int64_t lanes = build_.lanes();
  const std::int64_t whole = spec_.dim - spec_.dim % lanes;
  for_groups([&](Value* group) {
    if (whole > 0) {
      build_.loop(build_.index(0), build_.index(whole), lanes,
                  [&](Value* d) { turn_square(group, d); });
    }
    if (whole < spec_.dim) {
      build_.loop(build_.index(whole), build_.index(spec_.dim), 1,
                  [&](Value* d) { turn_column(group, d); });
    }
  });
}

// As many elements of as many keys as a vector has lanes.
void DecodeEmitter::turn_square(Value* group, Value* d) {
  Values vectors;
  for (int i = 0; i < build_.lanes(); ++i) {
    Value* row = key_row(group, i);
    vectors.push_back(stored(row, spec_.key_type, d, true));
    fetch_next(row, key_stride_, spec_.key_type, d);
  }
  vectors = transpose_vectors(build_, vectors);
  for (int i = 0; i < build_.lanes(); ++i) {
    build_.store(vectors[static_cast<std::size_t>(i)],
                 turned(group, build_.CreateNSWAdd(d, build_.index(i))));
  }
}

// One element of as many keys.
void DecodeEmitter::turn_column(Value* group, Value* d) {
  Value* vector = ::llvm::PoisonValue::get(build_.reals());
  for (int i = 0; i < build_.lanes(); ++i) {
    Value* element = stored(key_row(group, i), spec_.key_type, d, false);
    vector = build_.CreateInsertElement(vector, element, build_.index(i));
  }
  build_.store(vector, turned(group, d));
}

void DecodeEmitter::multiply() {
  for_rows([&](Value* first, int rows) { multiply_rows(first, rows); });
}

void DecodeEmitter::multiply_rows(Value* first, int rows) {
  Value* queries = arg(&DecodeKernelArgs::queries);
  for_groups([&](Value* group) {
    const Values zeros(static_cast<std::size_t>(rows), build_.numbers(0));
    const auto step = [&](Value* d, const Values& so_far) {
      Value* keys = build_.load(build_.reals(), turned(group, d));
      Values next;
      for (int r = 0; r < rows; ++r) {
        Value* row = build_.CreateNSWAdd(first, build_.index(r));
        Value* q = load_real(float_at(queries, row, spec_.dim, d));
        next.push_back(build_.fma(keys, build_.splat(q), so_far[static_cast<std::size_t>(r)]));
      }
      return next;
    };
    const Values sums = build_.loop(build_.index(0), build_.index(spec_.dim), 1, zeros, step);
    for (int r = 0; r < rows; ++r) {
      build_.store(sums[static_cast<std::size_t>(r)],
                   scores_of(build_.CreateNSWAdd(first, build_.index(r)), group));
    }
  });
}

// --- mods ----------------------------------------------------------------------------------------

// The score of a vector of keys after mod and mask; -inf in lanes without a key.
Value* DecodeEmitter::modified(Value* row, Value* score, Value* kv, Value* active) {
  ::llvm::Type* int32 = build_.getInt32Ty();
  Value* b = build_.CreateTrunc(arg(&DecodeKernelArgs::b), int32);
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
  Value* poison = nullptr;
  if (spec_.score.kind != plan::ScoreForm::Kind::plain) {
    const bool added = spec_.score.kind == plan::ScoreForm::Kind::added;
    const auto mod = prepare(spec_.score.graph, spec_.score_facts, spec_.compute,
                             arg(&DecodeKernelArgs::score_captures));
    const ModEmitter::Result result = mod->pair(0, added ? nullptr : score).front();
    Value* log2e = build_.numbers(std::numbers::log2e);
    Value* value = build_.splat(result.value);
    score = added ? build_.fma(value, log2e, score) : build_.CreateFMul(value, log2e);
    if (result.poison != nullptr) poison = build_.splat(result.poison);
  }
  Value* visible = active;
  if (spec_.masked) {
    const auto mask =
        prepare(spec_.mask, spec_.mask_facts, DType::f64, arg(&DecodeKernelArgs::mask_captures));
    const std::vector<ModEmitter::Result> seen = mask->pair(0, nullptr);
    visible = build_.CreateAnd(visible, build_.splat(seen.front().value));
    if (poison != nullptr) poison = build_.CreateAnd(poison, visible);
    if (seen.back().poison != nullptr) {
      Value* unknown = build_.splat(seen.back().poison);
      poison = poison == nullptr ? unknown : build_.CreateOr(poison, unknown);
    }
  }
  if (poison != nullptr) {
    build_.when(
        any(build_.CreateAnd(poison, active)),
        [&] { build_.CreateStore(build_.getInt64(1), arg(&DecodeKernelArgs::poisoned)); }, true);
  }
  return build_.CreateSelect(visible, score, build_.numbers(negative_infinity));
}

void DecodeEmitter::apply_mods() {
  ::llvm::VectorType* integers = build_.vector(build_.getInt32Ty());
  std::vector<::llvm::Constant*> numbers;
  for (int i = 0; i < build_.lanes(); ++i)
    numbers.push_back(build_.getInt32(static_cast<std::uint32_t>(i)));
  Value* lane = ::llvm::ConstantVector::get(numbers);
  build_.loop(build_.index(0), rows_, 1, [&](Value* row) {
    for_groups([&](Value* group) {
      Value* first = build_.CreateNSWMul(group, build_.index(build_.lanes()));
      Value* left = build_.CreateTrunc(build_.CreateNSWSub(count_, first), build_.getInt32Ty());
      Value* active = build_.CreateICmpSLT(lane, build_.splat(left));
      Value* kv = build_.load(
          integers,
          build_.element(build_.getInt32Ty(), arg(&DecodeKernelArgs::key_positions), first));
      Value* address = scores_of(row, group);
      Value* score = build_.load(build_.reals(), address);
      build_.store(modified(row, score, kv, active), address);
    });
  });
}

// --- weights -------------------------------------------------------------------------------------

void DecodeEmitter::weigh() {
  build_.loop(build_.index(0), rows_, 1, [&](Value* r) { weigh_row(r); });
}

void DecodeEmitter::weigh_row(Value* row) {
  // In the order of keys, because of two zeros the first counts.
  const auto larger = [&](Value* k, const Values& so_far) {
    Value* score = load_real(float_at(scores_, row, spec_.key_block, k));
    return Values{build_.larger(score, so_far.front())};
  };
  Value* block =
      build_.loop(build_.index(0), count_, 1, {build_.number(negative_infinity)}, larger).front();
  Value* m_at = build_.element(build_.real(), arg(&DecodeKernelArgs::maximum), row);
  Value* l_at = build_.element(build_.real(), arg(&DecodeKernelArgs::weight), row);
  Value* old = load_real(m_at);
  Value* now = build_.larger(block, old);
  build_.CreateStore(now, m_at);
  // As vectors, whose arithmetic is the forward kernel's.
  Value *olds = build_.splat(old), *nows = build_.splat(now);
  Value* none = build_.numbers(negative_infinity);
  Value* power = build_.CreateSelect(build_.CreateFCmpOEQ(nows, none), build_.numbers(0),
                                     round_up(build_, nows));
  Value* before =
      build_.CreateSelect(build_.CreateFCmpOEQ(olds, none), power, round_up(build_, olds));
  Value* change = build_.CreateFSub(before, power);
  build_.when(any(build_.CreateFCmpONE(change, build_.numbers(0))), [&] {
    Value* factor = build_.CreateExtractElement(scale_down(build_, build_.numbers(1), change),
                                                std::uint64_t{0});
    build_.CreateStore(build_.CreateFMul(load_real(l_at), factor), l_at);
    Value* sums = arg(&DecodeKernelArgs::sums);
    build_.loop(build_.index(0), build_.index(spec_.value_dim), 1, [&](Value* d) {
      Value* at = float_at(sums, row, spec_.value_dim, d);
      build_.CreateStore(build_.CreateFMul(load_real(at), factor), at);
    });
  });
  for_groups([&](Value* group) {
    Value* at = scores_of(row, group);
    build_.store(exp2_below(build_, build_.load(build_.reals(), at), power), at);
  });
  const auto add = [&](Value* k, const Values& so_far) {
    Value* weight = load_real(float_at(scores_, row, spec_.key_block, k));
    return Values{build_.CreateFAdd(so_far.front(), weight)};
  };
  Value* total = build_.loop(build_.index(0), count_, 1, {load_real(l_at)}, add).front();
  build_.CreateStore(total, l_at);
}

// --- values --------------------------------------------------------------------------------------

void DecodeEmitter::add_values() {
  for_rows([&](Value* first, int rows) { add_rows(first, rows); });
}

void DecodeEmitter::add_rows(Value* first, int rows) {
  const std::int64_t lanes = build_.lanes();
  const std::int64_t all = spec_.value_dim / lanes;  // vectors
  const std::int64_t at_once = std::min<std::int64_t>(all, rows == 1 ? 8 : 3);
  const std::int64_t whole = at_once == 0 ? 0 : all - all % at_once;
  if (whole > 0) {
    build_.loop(build_.index(0), build_.index(whole * lanes), at_once * lanes,
                [&](Value* d) { add_columns(first, rows, d, static_cast<int>(at_once)); });
  }
  if (whole < all)
    add_columns(first, rows, build_.index(whole * lanes), static_cast<int>(all - whole));
  if (all * lanes == spec_.value_dim) return;
  build_.loop(build_.index(all * lanes), build_.index(spec_.value_dim), 1, [&](Value* d) {
    for (int r = 0; r < rows; ++r) add_column(build_.CreateNSWAdd(first, build_.index(r)), d);
  });
}

// `vectors` vectors of O of some rows, from element d on.
void DecodeEmitter::add_columns(Value* first, int rows, Value* d, int vectors) {
  const auto address = [&](int r, int v) {
    Value* row = build_.CreateNSWAdd(first, build_.index(r));
    return float_at(arg(&DecodeKernelArgs::sums), row, spec_.value_dim,
                    build_.CreateNSWAdd(d, build_.index(v * build_.lanes())));
  };
  Values sums;
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v) sums.push_back(build_.load(build_.reals(), address(r, v)));
  const auto step = [&](Value* k, const Values& so_far) {
    Value* row = build_.element(build_.getInt8Ty(), values_, build_.CreateNSWMul(k, value_stride_));
    Values values;
    for (int v = 0; v < vectors; ++v) {
      Value* at = build_.CreateNSWAdd(d, build_.index(v * build_.lanes()));
      values.push_back(stored(row, spec_.value_type, at, true));
      fetch_next(row, value_stride_, spec_.value_type, at);
    }
    Values next;
    for (int r = 0; r < rows; ++r) {
      Value* query = build_.CreateNSWAdd(first, build_.index(r));
      Value* weight = build_.splat(load_real(float_at(scores_, query, spec_.key_block, k)));
      for (int v = 0; v < vectors; ++v) {
        next.push_back(build_.fma(values[static_cast<std::size_t>(v)], weight,
                                  so_far[static_cast<std::size_t>(r * vectors + v)]));
      }
    }
    return next;
  };
  sums = build_.loop(build_.index(0), count_, 1, sums, step);
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v)
      build_.store(sums[static_cast<std::size_t>(r * vectors + v)], address(r, v));
}

// One element of O of a row.
void DecodeEmitter::add_column(Value* row, Value* d) {
  Value* at = float_at(arg(&DecodeKernelArgs::sums), row, spec_.value_dim, d);
  const auto step = [&](Value* k, const Values& so_far) {
    Value* values =
        build_.element(build_.getInt8Ty(), values_, build_.CreateNSWMul(k, value_stride_));
    Value* weight = load_real(float_at(scores_, row, spec_.key_block, k));
    return Values{build_.fma(stored(values, spec_.value_type, d, false), weight, so_far.front())};
  };
  build_.CreateStore(build_.loop(build_.index(0), count_, 1, {load_real(at)}, step).front(), at);
}

}  // namespace

Module emit_decode(const plan::DecodeKernelSpec& spec) { return DecodeEmitter(spec).emit(); }

}  // namespace treadle::emit::llvm
