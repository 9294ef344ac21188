// Decode: a few queries of each of some sequences against many keys. Rows of all heads of a key head
// look at keys together, which are read in place, in their own type, and lie in the lanes
// (plan/decode_kernel.h).
//
//   DecodeWork work;
//   work.start(problem, workers, scratch);
//   run({&work}, workers, scratch);
//   for (sequence of work.unclear()) ...                   // the forward has to look into a NaN
//   work.end();                                            // until it is started again
//
// A row has the bits that the forward (run/forward.h) gives it, whatever other sequences there are.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/parallel.h"
#include "layout/layout.h"
#include "plan/decode_kernel.h"
#include "run/forward.h"
#include "run/lazy_kernel.h"
#include "run/rows.h"
#include "run/scratch.h"
#include "run/work.h"

namespace treadle::run {

struct DecodeKernels {
  plan::DecodeKernelSpec spec;  // of both, but for `masked`
  double query_factor = 1;      // what queries are multiplied with besides the scale
  std::int64_t frame = 0;       // bytes of DecodeKernelArgs::frame
  LazyKernel<plan::DecodeKernelArgs> full, masked;
  CopyKernel load_q, store_out;  // into the compute type, and out of it
};

// Adds what has to be compiled before a call with this layout runs.
void needed(const DecodeKernels& kernels, const layout::OneTile& layout, Missing& missing);

// Adds all of them. `may_hide`: some pairs may be hidden.
void all_of(const DecodeKernels& kernels, bool may_hide, Missing& missing);

// What decoding takes besides its kernels' specs.
struct DecodeCapacity {
  std::int64_t rows = 0, lists = 0, chunks = 0;  // of a key head; sequences x key heads; of a list
};
// Bytes that a thread needs at most, its share of kept chunks included.
std::int64_t decode_scratch(const DecodeKernels& kernels, const DecodeCapacity& capacity);

// An entry of the batch of a forward problem.
struct DecodeSequence {
  const ForwardProblem& problem;
  std::int64_t entry = 0;
  std::int64_t b = 0;      // as mods see it
  layout::OneTile layout;  // the tile holds the queries
  std::int64_t layout_entry = 0;
  const DecodeKernels& kernels;  // for its number of rows
};

// Sequences whose first keys are the same memory, and are looked at together.
struct SharedKeys {
  std::vector<std::int64_t> sequences;     // numbers, ascending
  std::int64_t end = 0;                    // the position where the first different key may be
  const DecodeKernels* kernels = nullptr;  // for the rows of all of them
};

struct DecodeProblem {
  std::vector<DecodeSequence> sequences;
  std::vector<SharedKeys> shared;  // none has a sequence of another
  // Descriptors of captures (plan/capture_descriptors.h), of the exchanged graphs.
  std::vector<std::int64_t> score_captures, mask_captures;
};

// Keeps its memory from one problem to the next.
class DecodeWork final : public Work {
 public:
  DecodeWork();
  ~DecodeWork() override;

  // All of these outlive the work on them.
  void start(const DecodeProblem& problem, const base::Workers& workers, Scratch& scratch);
  // Gives back what was taken from `scratch`.
  void end();

  [[nodiscard]] int phases() const override;
  [[nodiscard]] std::int64_t count(int phase) const override;
  [[nodiscard]] double cost(int phase, std::int64_t item) const override;
  [[nodiscard]] WorkspaceNeed need() const override;
  void run(int phase, std::int64_t item, std::int64_t next, Workspace& workspace) override;

  // Numbers of sequences with a row that holds a NaN whose origin has to be looked into.
  [[nodiscard]] std::vector<std::int64_t> unclear() const;

  class Decoder;

 private:
  std::unique_ptr<Decoder> f32_, f64_;
  Decoder* decoder_ = nullptr;  // one of them
};

}  // namespace treadle::run
