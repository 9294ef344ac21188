// Reads along kv, done for a whole block of keys before its first pair.
//
// In: a block of keys. Out: for each key, what the lanes will read, contiguous in the scratch.
// Read ModEmitter::stage() first.
//
// A lane's elements for consecutive keys are contiguous in memory, so L lanes times L keys are L
// vector loads and a transpose. Keys with gaps are copied one element at a time.
#include <llvm/IR/Intrinsics.h>

#include "emit/llvm/mod_state.h"
#include "emit/llvm/transpose_vectors.h"

namespace treadle::emit::llvm {

using State = ModEmitter::State;

Value* State::scratch_address(std::size_t number, Value* place, int vector) {
  const std::int64_t row = std::int64_t{options.vectors} * build.lanes();
  ::llvm::Type* type = captures.element(plan.graph[plan.staged[number]].slot);
  Value* array = build.element(build.getInt64Ty(), scratch,
                               build.index(static_cast<std::int64_t>(number) * most * row));
  Value* first = build.CreateNSWMul(place, build.index(row));
  return build.element(type, array, build.CreateNSWAdd(first, build.index(vector * build.lanes())));
}

namespace {

// One staged load of one vector of the tile: where key 0 would be, by lane.
struct Rows {
  std::size_t number;
  int vector;
  ::llvm::Type* type;
  Values lanes;
};

Rows rows_of(State& state, std::size_t number, int vector, Value* first_key) {
  const ir::NodeId load = state.plan.staged[number];
  const ir::Node& node = state.plan.graph[load];
  Builder& build = state.build;
  // Indices are known to be inside only at keys of the block, so the address is computed at one.
  Value* at_key = build.CreateTrunc(first_key, state.ops.integer());
  Value* last = state.with(node.operands.back(), vector, ir::Input::kv, at_key);
  Value* first = state.captures.address(node.slot, state.indices(load, vector, last));
  Rows rows{.number = number, .vector = vector, .type = state.captures.element(node.slot)};
  Value* back = build.CreateNeg(first_key);
  Value* zero = build.CreateGEP(rows.type, first, back);
  for (int lane = 0; lane < build.lanes(); ++lane) {
    rows.lanes.push_back(build.CreateExtractElement(zero, static_cast<std::uint64_t>(lane)));
  }
  return rows;
}

// Keys `key`, key + 1, ... at places `place`, place + 1, ..., as many as there are lanes.
void copy_tile(State& state, const Rows& rows, Value* key, Value* place) {
  Builder& build = state.build;
  Values loaded;
  for (Value* row : rows.lanes) {
    loaded.push_back(build.load(build.vector(rows.type), build.CreateGEP(rows.type, row, key)));
  }
  const Values turned = transpose_vectors(build, loaded);
  for (int k = 0; k < build.lanes(); ++k) {
    Value* at = build.CreateNSWAdd(place, build.index(k));
    build.store(turned[static_cast<std::size_t>(k)],
                state.scratch_address(rows.number, at, rows.vector));
  }
}

struct Block {
  Value* keys;
  Value* count;

  Value* key(Builder& build, Value* place) const {
    Value* at = build.element(build.getInt32Ty(), keys, place);
    return build.CreateSExt(build.load(build.getInt32Ty(), at), build.getInt64Ty());
  }
};

void copy_key(State& state, const Rows& rows, Value* key, Value* place) {
  Builder& build = state.build;
  Value* to = state.scratch_address(rows.number, place, rows.vector);
  for (int lane = 0; lane < build.lanes(); ++lane) {
    Value* from = build.CreateGEP(rows.type, rows.lanes[static_cast<std::size_t>(lane)], key);
    build.store(build.load(rows.type, from), build.element(rows.type, to, build.index(lane)));
  }
}

void copy_rows(State& state, const Rows& rows, const Block& block) {
  Builder& build = state.build;
  const int lanes = build.lanes();
  build.loop(build.index(0), block.count, lanes, [&](Value* begin) {
    Value* end = build.CreateBinaryIntrinsic(
        ::llvm::Intrinsic::smin, build.CreateNSWAdd(begin, build.index(lanes)), block.count);
    Value* first = block.key(build, begin);
    Value* last = block.key(build, build.CreateNSWSub(end, build.index(1)));
    // Keys ascend, so only as many keys as there are lanes can span so far, and only without a gap.
    Value* whole = build.CreateICmpEQ(build.CreateNSWSub(end, begin), build.index(lanes));
    Value* close = build.CreateICmpEQ(build.CreateNSWSub(last, first), build.index(lanes - 1));
    Value* run = build.CreateAnd(whole, close);
    build.when(run, [&] { copy_tile(state, rows, first, begin); });
    build.when(build.CreateNot(run), [&] {
      build.loop(begin, end, 1,
                 [&](Value* place) { copy_key(state, rows, block.key(build, place), place); });
    });
  });
}

}  // namespace

void ModEmitter::stage(Value* keys, Value* count, std::int64_t most, Value* scratch) {
  State& state = *state_;
  Builder& build = state.build;
  state.scratch = scratch;
  state.most = most;
  if (state.plan.staged.empty()) return;
  build.when(build.CreateICmpSGT(count, build.index(0)), [&] {
    // One vector's rows at a time: all rows may fall into one set of the cache, which holds only a
    // few of them.
    const Block block{.keys = keys, .count = count};
    Value* first_key = block.key(build, build.index(0));
    for (std::size_t number = 0; number < state.plan.staged.size(); ++number) {
      for (int v = 0; v < state.options.vectors; ++v) {
        copy_rows(state, rows_of(state, number, v, first_key), block);
      }
    }
  });
}

}  // namespace treadle::emit::llvm
