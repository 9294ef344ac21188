// A mod's graph as code: one tile of queries in the lanes, one key at a time.
//
//   ModEmitter mask(build, plan_mod(graph, facts), {.real = DType::f64, .captures = captures,
//                                                   .vectors = 3});
//   mask.head(b, h);                        // once: what depends on b and h alone, as scalars
//   mask.queries(q, active);                // once: what depends on q, for each vector of the tile
//   mask.stage(keys, count, most, scratch); // once per block of keys: reads that run along kv
//   build.loop(begin, end, 1, [&](Value* i) {
//     mask.key(kv, i);                      // per key: what depends on kv alone, as scalars
//     for (int v = 0; v < 3; ++v)
//       mask.pair(v, score);                // the rest, one vector of queries at a time
//   });
//
// So a value is computed as rarely as its inputs allow, and as a scalar as long as no lane differs.
// When and how is decided in plan/mod_plan.h; here it is only done. A captured read becomes a
// broadcast (index without q), a vector load (index q + ... or ... - q: the lanes are consecutive),
// a transposed tile (index [q, kv], contiguous along kv) or a gather. Emitting may begin new basic
// blocks; the builder is left in the last one.
//
// The plan of a large mod is in pieces. Each becomes a function of its own, which the calls above
// then call (emit/llvm/mod_pieces.h).
//
// With Reads::checked no read leaves its buffer and values carry poison by the interpreter's
// three-valued rules; with Reads::clamped indices are moved inside where the facts say so; with
// Reads::proven nothing is checked. Only the first has poison.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "emit/llvm/builder.h"
#include "plan/mod_plan.h"

namespace treadle::emit::llvm {

struct ModOptions {
  DType real = DType::f32;    // the float of this graph's arithmetic; masks are always f64
  Value* captures = nullptr;  // address of the captures' descriptors (plan/capture_descriptors.h)
  int vectors = 1;            // per tile
  // Of plans in pieces: memory of plan::frame_bytes().
  Value* frame = nullptr;
};

class ModEmitter {
 public:
  ModEmitter(Builder& build, plan::ModPlan plan, const ModOptions& options);
  ~ModEmitter();

  // b, h and kv are i32, q one <lanes x i32> per vector of the tile. Lanes beyond the tile's
  // queries repeat its last query and are false in `active` (<lanes x i1>): they read nothing that
  // the last query does not read.
  void head(Value* b, Value* h);
  void queries(const Values& q, const Values& active);

  // Reads along kv, kept in scratch for a block of keys: arrays of [most][vectors * lanes] elements,
  // together plan::staged_bytes() for each. `keys` is an array of ascending i32, `count` (i64) of them,
  // at most `most`. Mods whose reads are checked have none.
  void stage(Value* keys, Value* count, std::int64_t most, Value* scratch);

  // kv is the key, position its place in the block (i64).
  void key(Value* kv, Value* position);

  struct Result {
    Value* value = nullptr;   // a scalar if no lane can differ, else a vector: real, i32/i64 or i1
    Value* poison = nullptr;  // i1 or <lanes x i1>; null: never
  };
  // One per output of the graph. Inputs that the graph does not use may be null.
  std::vector<Result> pair(int vector, Value* score, Value* grad = nullptr);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace treadle::emit::llvm
