// A backward call on its way, or a part of one.
//
//   BackwardCall call(cpu, request, layout);      // facts, kernels
//   compile(call.missing());
//   call.run(Nonfinite::fast);                    // memory, schedule, run, deliver
#pragma once

#include <memory>
#include <vector>

#include "backend/cpu/call_memory.h"
#include "backend/cpu/cpu.h"
#include "run/backward.h"

namespace treadle::backend::cpu {

class Cpu::BackwardCall {
 public:
  // The request outlives this.
  BackwardCall(const Cpu& cpu, const BackwardRequest& request, const Layout& layout);

  [[nodiscard]] const run::Missing& missing() const { return missing_; }
  // Delivers the results if the end is done. Throws treadle::ModError if a mod failed at a visible
  // pair.
  BackwardEnd run(run::Nonfinite nonfinite);

 private:
  [[nodiscard]] plan::BackwardSchedule schedule(const layout::Layout& layout,
                                                const BackwardMemory& memory) const;

  const Cpu& cpu_;
  const BackwardRequest& request_;
  const Layout layout_;
  bool checked_ = false, adds_up_ = false;
  std::vector<std::shared_ptr<const run::BackwardKernels>> kernels_;
  run::Missing missing_;
  std::vector<run::BackwardPass> passes_;
};

}  // namespace treadle::backend::cpu
