// Work: what a call, or a part of one, has to do. Threads do the items of a phase in any order; the
// next phase begins when all of them are done.
//
//   ForwardWork prompt(passes, problem, workers, scratch);
//   DecodeWork tokens(...);
//   run({&prompt, &tokens}, workers, scratch);       // together, the longest items first
//
// All memory is taken before the first item begins, so what fails for want of it has written nothing.
#pragma once

#include <cstdint>
#include <span>

#include "base/parallel.h"
#include "run/scratch.h"

namespace treadle::run {

class Work {
 public:
  virtual ~Work() = default;

  [[nodiscard]] virtual int phases() const = 0;
  [[nodiscard]] virtual std::int64_t count(int phase) const = 0;
  // In the units of layout::TileWeights. Items of a work come by stage, the longest first.
  [[nodiscard]] virtual double cost(int phase, std::int64_t item) const = 0;
  // Items of later stages may have to wait for what comes from elsewhere, and begin later.
  [[nodiscard]] virtual int stage(int, std::int64_t) const { return 0; }
  // Of an item.
  [[nodiscard]] virtual WorkspaceNeed need() const = 0;
  // `next` is the item that the thread will probably have after it, or -1.
  virtual void run(int phase, std::int64_t item, std::int64_t next, Workspace& workspace) = 0;
  // After a phase: whether the next ones have lost their sense.
  [[nodiscard]] virtual bool failed() const { return false; }
};

void run(std::span<Work* const> works, const base::Workers& workers, Scratch& scratch);

}  // namespace treadle::run
