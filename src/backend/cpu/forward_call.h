// A forward call on its way, if it takes the general way: tiles of queries in the lanes.
//
//   ForwardCall call(cpu, request, layout, missing);      // facts, kernels
//   compile(missing);
//   run({&call.prepare(call.may_fail())}, ...);           // memory, schedule
//   call.finish();                                        // fails, or
//   call.deliver();                                       // cannot fail any more
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backend/cpu/call_memory.h"
#include "backend/cpu/cpu.h"
#include "run/forward.h"

namespace treadle::backend::cpu {

class Cpu::ForwardCall {
 public:
  // Adds what has to be compiled. The request outlives this.
  ForwardCall(const Cpu& cpu, const ForwardRequest& request, Layout layout, run::Missing& missing);

  // Whether it may fail at a pair.
  [[nodiscard]] bool may_fail() const { return checked_; }
  // `in_private`: results are not written before they are delivered.
  run::Work& prepare(bool in_private);
  // Throws treadle::ModError if a mod failed at a visible pair.
  void finish() const;
  void deliver() const { memory_->deliver(); }

 private:
  const Cpu& cpu_;
  const ForwardRequest& request_;
  Layout layout_;
  bool checked_ = false;
  std::vector<std::shared_ptr<const run::ForwardKernels>> kernels_;
  std::vector<run::ForwardPass> passes_;
  std::optional<ForwardMemory> memory_;
  std::optional<run::ForwardProblem> problem_;
  std::optional<run::ForwardWork> work_;
};

}  // namespace treadle::backend::cpu
