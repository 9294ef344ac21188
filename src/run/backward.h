// Backward: gradients of queries, keys, values and captures, on all threads.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "layout/layout.h"
#include "plan/backward_schedule.h"
#include "plan/dropout_args.h"
#include "run/backward_kernels.h"
#include "run/backward_share.h"
#include "run/key_source.h"
#include "run/poisoned.h"
#include "run/scratch.h"
#include "treadle/view.h"

namespace treadle::run {

// The gradient of a capture. Each of its contributions adds values at offsets that the score mod
// computes.
struct CapturedSum {
  std::vector<std::size_t> contributions;  // of the kernels', in order
  std::int64_t count = 0;
  void* sum = nullptr;  // [count] of the compute type
  bool clear = false;   // it does not hold zeros yet: the call writes them, when nothing can fail
  plan::CaptureReach reach;
};

struct BackwardProblem {
  ConstView q, out, dout;  // last stride 1
  const KeySource& keys;
  ConstView lse;  // [B, Hq, Sq] of the compute type
  std::optional<ConstView> dlse;
  View dq, dk, dv;  // shapes and types of q, k, v; last stride 1
  double scale = 1;
  std::vector<std::int64_t> score_captures, derivative_captures;
  std::vector<CapturedSum> captured;
  std::vector<std::int64_t> gradient_strides;  // in elements, contribution after contribution
  plan::DropoutArgs dropout;                   // of kernels that drop weights
  // If out is not here: rowsum(dO * O) - dlse of each row, as find_terms() gives it, of the shape and
  // type of lse; dlse is not looked at.
  std::optional<ConstView> delta;
  // If only some of the queries are here; dk and dv are not written then.
  const BackwardShare* share = nullptr;
};

// The pairs that one term of the mask shows; for most masks these are all.
struct BackwardPass {
  const BackwardKernels& kernels;
  const layout::Layout& layout;
  std::vector<std::int64_t> mask_captures;
  plan::BackwardSchedule schedule;
};

struct BackwardDone {
  std::optional<Poisoned> poisoned;
  // There is a NaN. Unless it was exact, it may have come from a hidden pair, and the rest may not
  // have been computed.
  bool nan = false;
};

// How pairs that are hidden meet infinities and NaN: 0 * inf is NaN, unless they are kept apart,
// which takes longer.
enum class Nonfinite : std::uint8_t { fast, exact };

// Passes add up in their order: each is complete, and scaled, before the next is added. With several
// passes dq, dk and dv are of the compute type.
BackwardDone backward(std::span<const BackwardPass> passes, const BackwardProblem& problem,
                      Nonfinite nonfinite, const base::Workers& workers, Scratch& scratch);

// Bytes of a thread's workspace that no task of such calls exceeds, but for private sums of
// captures' gradients. `keys` is how many a task has at most, `leaves` how many the queries of a key
// head make (run/sum_tree.h), `mods` that of BackwardKernels.
std::int64_t backward_scratch(const plan::TilePlan& plan, std::int64_t keys, std::int64_t leaves,
                              std::int64_t contributions, const plan::ModScratch& mods);

}  // namespace treadle::run
