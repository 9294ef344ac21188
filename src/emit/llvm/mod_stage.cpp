// Reads along kv. In: a block of keys; out: for each key, what the lanes will want, side by side in
// the scratch.
//
// A lane's elements for consecutive keys lie side by side in memory, so L lanes times L keys are L
// vector loads and a transpose. Keys with gaps are copied one element at a time.
#include <llvm/IR/Intrinsics.h>

#include "emit/llvm/mod_state.h"
#include "emit/llvm/transpose.h"

namespace treadle::emit {

using State = ModEmitter::State;

Value* State::scratch_address(std::size_t number, Value* place, int vector) {
  const std::int64_t row = std::int64_t{options.vectors} * build.lanes();
  llvm::Type* type = captures.element(graph[staged[number]].slot);
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
  llvm::Type* type;
  Values lanes;
};

Rows rows_of(State& state, std::size_t number, int vector, Value* first_key) {
  const ir::NodeId load = state.staged[number];
  const ir::Node& node = state.graph[load];
  Builder& build = state.build;
  // Indices are sure to be good at a key of the block only, so that is where the address is taken.
  Value* at_key = state.does.from_index(first_key);
  Value* last = state.with(node.operands.back(), vector, ir::Input::kv, at_key);
  Value* first = state.captures.address(node.slot, state.indices(load, vector, last));
  Rows rows{.number = number, .vector = vector, .type = state.captures.element(node.slot)};
  Value* back = build.CreateNeg(build.CreateSExt(first_key, build.getInt64Ty()));
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
  const Values turned = transpose(build, loaded);
  for (int k = 0; k < build.lanes(); ++k) {
    Value* at = build.CreateNSWAdd(place, build.index(k));
    build.store(turned[static_cast<std::size_t>(k)],
                state.scratch_address(rows.number, at, rows.vector));
  }
}

void copy_key(State& state, const Rows& rows, Value* key, Value* place) {
  Builder& build = state.build;
  Value* to = state.scratch_address(rows.number, place, rows.vector);
  for (int lane = 0; lane < build.lanes(); ++lane) {
    Value* from = build.CreateGEP(rows.type, rows.lanes[static_cast<std::size_t>(lane)], key);
    build.store(build.load(rows.type, from), build.element(rows.type, to, build.index(lane)));
  }
}

}  // namespace

void ModEmitter::stage(Value* keys, Value* count, std::int64_t most, Value* scratch) {
  State& state = *state_;
  Builder& build = state.build;
  state.scratch = scratch;
  state.most = most;
  if (state.staged.empty()) return;

  const auto key_at = [&](Value* place) {
    return build.load(build.getInt32Ty(), build.element(build.getInt32Ty(), keys, place));
  };
  const auto wide = [&](Value* key) { return build.CreateSExt(key, build.getInt64Ty()); };
  const int lanes = build.lanes();
  build.when(build.CreateICmpSGT(count, build.index(0)), [&] {
    Value* first_key = key_at(build.index(0));
    std::vector<Rows> all;
    for (std::size_t number = 0; number < state.staged.size(); ++number) {
      for (int v = 0; v < state.options.vectors; ++v) {
        all.push_back(rows_of(state, number, v, first_key));
      }
    }
    build.loop(build.index(0), count, lanes, [&](Value* begin) {
      Value* end = build.CreateBinaryIntrinsic(
          llvm::Intrinsic::smin, build.CreateNSWAdd(begin, build.index(lanes)), count);
      Value* first = wide(key_at(begin));
      Value* last = wide(key_at(build.CreateNSWSub(end, build.index(1))));
      // Keys ascend, so only as many keys as there are lanes can span so far without a gap.
      Value* whole = build.CreateICmpEQ(build.CreateNSWSub(end, begin), build.index(lanes));
      Value* close = build.CreateICmpEQ(build.CreateNSWSub(last, first), build.index(lanes - 1));
      Value* run = build.CreateAnd(whole, close);
      build.when(run, [&] {
        for (const Rows& rows : all) copy_tile(state, rows, first, begin);
      });
      build.when(build.CreateNot(run), [&] {
        build.loop(begin, end, 1, [&](Value* place) {
          for (const Rows& rows : all) copy_key(state, rows, wide(key_at(place)), place);
        });
      });
    });
  });
}

}  // namespace treadle::emit
