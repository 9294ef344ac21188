// The memory of a call: inputs as kernels want them, and where results are computed.
//
// A call that may fail at a pair, or whose results lie where it reads, computes in private memory
// and copies when all has succeeded.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "backend/cpu/call_facts.h"
#include "backend/cpu/capture_sums.h"
#include "backend/cpu/placed.h"
#include "run/backward.h"
#include "run/forward.h"
#include "run/key_source.h"
#include "run/paged_source.h"

namespace treadle::backend::cpu {

class ForwardMemory {
 public:
  ForwardMemory(const ForwardRequest& call, bool may_fail);
  ForwardMemory(const ForwardMemory&) = delete;
  ForwardMemory& operator=(const ForwardMemory&) = delete;

  [[nodiscard]] const run::KeySource& keys() const;
  // Valid as long as this and the call are. Without descriptors of captures.
  [[nodiscard]] run::ForwardProblem problem(const ForwardRequest& call) const;
  void deliver() const;

 private:
  RowInput q_, k_, v_;
  const std::variant<run::TensorKeys, run::PagedSource, const run::KeySource*> keys_;
  bool private_;
  PlacedResult out_;
  std::optional<PlacedResult> lse_, max_;
};

class BackwardMemory {
 public:
  // `adds_up`: passes add to dq, dk and dv, so they are of the compute type until delivered.
  BackwardMemory(const BackwardRequest& call, const Program& program, const Forms& forms,
                 bool may_fail, bool adds_up);

  [[nodiscard]] const run::KeySource& keys() const { return given_ != nullptr ? *given_ : keys_; }
  [[nodiscard]] std::vector<plan::CaptureReach> reaches() const;
  [[nodiscard]] run::BackwardProblem problem(const BackwardRequest& call) const;
  void deliver() const;

 private:
  std::vector<ConstView> score_captures_;
  bool private_;
  PlacedResult dq_, dk_, dv_;
  CaptureSums captures_;
  RowInput q_, k_, v_, out_, dout_;
  run::TensorKeys keys_;
  const run::KeySource* given_;  // instead of them
};

// Zeros, for a call that has no pairs at all.
void fill_with_zeros(const BackwardViews& results);

}  // namespace treadle::backend::cpu
