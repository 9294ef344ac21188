// Reads along kv, done for a whole block of keys before its first pair.
//
// In: a block of keys. Out: for each key, what the lanes will read, contiguous in the scratch.
// Read ModEmitter::stage() first.
//
// A lane's elements for consecutive keys are contiguous in memory, so L lanes times L keys are L
// vector loads and a transpose. Keys with gaps are copied one element at a time. This is a function
// of its own, called for each read and vector of queries: it is long, and reads may be many.
#include <fmt/format.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include "emit/llvm/mod_pieces.h"
#include "emit/llvm/mod_state.h"
#include "emit/llvm/transpose_vectors.h"

namespace treadle::emit::llvm {

using State = ModEmitter::State;

Value* State::scratch_address(std::size_t number, Value* place, int vector) {
  const std::int64_t row = std::int64_t{options.vectors} * build.lanes();
  ::llvm::Type* type = captures.element(plan.graph[plan.staged[number]].slot);
  const bool inside = pieces && pieces->inside();
  Value* array = build.element(build.getInt8Ty(), inside ? pieces->scratch() : scratch,
                               build.index(plan.staged_before[number] * most * row));
  Value* first = build.CreateNSWMul(place, build.index(row));
  Value* lane = inside ? pieces->first_lane() : build.index(vector * build.lanes());
  return build.element(type, array, build.CreateNSWAdd(first, lane));
}

namespace {

// What is copied: elements of `type`, for each lane those from an address on, that of key 0.
struct Rows {
  ::llvm::Type* type;
  Values lanes;  // addresses
  Value *keys, *count;
  Value* to;              // of the first key, its first lane
  std::int64_t to_width;  // elements from one key to the next

  Value* key(Builder& build, Value* place) const {
    Value* at = build.element(build.getInt32Ty(), keys, place);
    return build.CreateSExt(build.load(build.getInt32Ty(), at), build.getInt64Ty());
  }
  Value* target(Builder& build, Value* place) const {
    return build.element(type, to, build.CreateNSWMul(place, build.index(to_width)));
  }
};

// Keys `key`, key + 1, ... at places `place`, place + 1, ..., as many as there are lanes.
void copy_tile(Builder& build, const Rows& rows, Value* key, Value* place) {
  Values loaded;
  for (Value* row : rows.lanes) {
    loaded.push_back(build.load(build.vector(rows.type), build.CreateGEP(rows.type, row, key)));
  }
  const Values turned = transpose_vectors(build, loaded);
  for (int k = 0; k < build.lanes(); ++k) {
    Value* at = build.CreateNSWAdd(place, build.index(k));
    build.store(turned[static_cast<std::size_t>(k)], rows.target(build, at));
  }
}

void copy_key(Builder& build, const Rows& rows, Value* key, Value* place) {
  Value* to = rows.target(build, place);
  for (int lane = 0; lane < build.lanes(); ++lane) {
    Value* from = build.CreateGEP(rows.type, rows.lanes[static_cast<std::size_t>(lane)], key);
    build.store(build.load(rows.type, from), build.element(rows.type, to, build.index(lane)));
  }
}

void copy_rows(Builder& build, const Rows& rows) {
  const int lanes = build.lanes();
  build.loop(build.index(0), rows.count, lanes, [&](Value* begin) {
    Value* end = build.CreateBinaryIntrinsic(
        ::llvm::Intrinsic::smin, build.CreateNSWAdd(begin, build.index(lanes)), rows.count);
    Value* first = rows.key(build, begin);
    Value* last = rows.key(build, build.CreateNSWSub(end, build.index(1)));
    // Keys ascend, so only as many keys as there are lanes can span so far, and only without a gap.
    Value* whole = build.CreateICmpEQ(build.CreateNSWSub(end, begin), build.index(lanes));
    Value* close = build.CreateICmpEQ(build.CreateNSWSub(last, first), build.index(lanes - 1));
    Value* run = build.CreateAnd(whole, close);
    build.when(run, [&] { copy_tile(build, rows, first, begin); });
    build.when(build.CreateNot(run), [&] {
      build.loop(begin, end, 1,
                 [&](Value* place) { copy_key(build, rows, rows.key(build, place), place); });
    });
  });
}

// The function that copies rows of such elements: of addresses, keys, their number and the target.
::llvm::Function* copier(Builder& build, ::llvm::Type* type, std::int64_t to_width) {
  ::llvm::Module& module = *build.GetInsertBlock()->getModule();
  const std::string name =
      fmt::format("stage_{}{}", type->isFloatingPointTy() ? 'f' : 'i', type->getScalarSizeInBits());
  if (::llvm::Function* known = module.getFunction(name)) return known;
  ::llvm::Type* pointer = build.getPtrTy();
  auto* signature = ::llvm::FunctionType::get(
      build.getVoidTy(), {build.vector(pointer), pointer, build.getInt64Ty(), pointer}, false);
  ::llvm::Function* function = make_function(module, name, signature, build.target());
  function->setLinkage(::llvm::GlobalValue::InternalLinkage);
  function->addFnAttr(::llvm::Attribute::NoInline);
  Builder inside(function, build.target(), build.compute());
  Values lanes;
  for (int lane = 0; lane < inside.lanes(); ++lane) {
    lanes.push_back(
        inside.CreateExtractElement(function->getArg(0), static_cast<std::uint64_t>(lane)));
  }
  copy_rows(inside, {.type = type,
                     .lanes = lanes,
                     .keys = function->getArg(1),
                     .count = function->getArg(2),
                     .to = function->getArg(3),
                     .to_width = to_width});
  inside.CreateRetVoid();
  return function;
}

// The keys of a block: the first, and how far the last is from it, with both ends, as the graph's
// integer.
struct Reach {
  Value *first_key, *keys;
};

// Where a staged load's element for key 0 would be, by lane. Indices are known to be inside only at
// keys of the block, so the address is computed at one.
Value* key_zero(State& state, ir::NodeId load, int vector, const Reach& reach) {
  const ir::Node& node = state.plan.graph[load];
  Builder& build = state.build;
  Value* last = state.at_first_key[static_cast<std::size_t>(vector)][node.operands.back()];
  last = state.last_index(load, last, reach.keys);
  Value* first = state.captures.address(node.slot, state.indices(load, vector, last));
  ::llvm::Type* type = state.captures.element(node.slot);
  return build.splat(build.CreateGEP(type, first, build.CreateNeg(reach.first_key)));
}

}  // namespace

void ModEmitter::stage(Value* keys, Value* count, std::int64_t most, Value* scratch) {
  State& state = *state_;
  Builder& build = state.build;
  state.scratch = scratch;
  state.most = most;
  if (state.plan.staged.empty()) return;
  if (state.pieces) state.pieces->set_scratch();
  const std::int64_t width = std::int64_t{state.options.vectors} * build.lanes();
  build.when(build.CreateICmpSGT(count, build.index(0)), [&] {
    const auto key = [&](Value* place) {
      Value* at = build.element(build.getInt32Ty(), keys, place);
      return build.CreateSExt(build.load(build.getInt32Ty(), at), build.getInt64Ty());
    };
    Value* first_key = key(build.index(0));
    Value* last_key = key(build.CreateNSWSub(count, build.index(1)));
    Value* apart = build.CreateNSWAdd(build.CreateNSWSub(last_key, first_key), build.index(1));
    const Reach reach{first_key, build.CreateTrunc(apart, state.ops.integer())};
    state.emit_first_key(first_key);
    for (std::size_t number = 0; number < state.plan.staged.size(); ++number) {
      const ir::NodeId load = state.plan.staged[number];
      ::llvm::Type* type = state.captures.element(state.plan.graph[load].slot);
      // One vector's rows at a time: all rows may fall into one set of the cache, which holds only
      // a few of them.
      for (int v = 0; v < state.options.vectors; ++v) {
        build.CreateCall(copier(build, type, width),
                         {key_zero(state, load, v, reach), keys, count,
                          state.scratch_address(number, build.index(0), v)});
      }
    }
  });
}

}  // namespace treadle::emit::llvm
