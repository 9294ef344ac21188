// One thread's part of a forward call: takes a task, writes the rows of its tiles.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "plan/schedule.h"
#include "run/forward.h"

namespace treadle::run {

// What all threads of a call share.
struct ForwardShared {
  const ForwardKernels& kernels;
  const ForwardProblem& problem;
  const plan::Schedule& schedule;
  std::vector<int> vectors;  // of a tile of so many vectors' worth of queries, by that number - 1
  // Pieces of cut tasks: where each cut's partial results begin, and how many pieces are not done
  // yet.
  std::byte* partial = nullptr;
  std::vector<std::size_t> partial_offsets;
  std::vector<std::atomic<std::int64_t>> pieces_left;
  FirstPoisoned poisoned;
  const base::Workers& workers;
};

// What a task of the call needs at most.
WorkspaceNeed workspace_need(const ForwardShared& shared);

// Bytes of the partial results of one tile and chunk.
std::size_t state_bytes(const plan::TilePlan& plan);

void run_task(ForwardShared& shared, const plan::Task& task, Workspace& workspace);

}  // namespace treadle::run
