// One thread's part of a forward call: takes a task, writes the rows of its tiles.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "plan/schedule.h"
#include "run/forward.h"
#include "run/pass_order.h"

namespace treadle::run {

// What all threads of a pass share.
struct ForwardShared {
  const ForwardProblem& problem;
  const ForwardPass& pass;
  std::size_t number;  // of the pass
  const PassOrder& order;
  std::vector<int> vectors;  // of a tile of so many vectors' worth of queries, by that number - 1
  const base::Workers& workers;
  plan::ModScratch mods;  // enough for the mods of each term

  // States of rows between passes: run/row_states.h.
  std::byte* rows = nullptr;
  // Pieces of cut tasks: where each cut's partial results begin, and how many pieces are not done
  // yet.
  std::byte* partial = nullptr;
  std::vector<std::size_t> partial_offsets;
  std::vector<std::atomic<std::int64_t>> pieces_left;
  FirstPoisoned poisoned;

  // The first of its terms is number `first_term` of all.
  ForwardShared(const ForwardProblem& of, const ForwardPass& one, std::size_t which,
                std::size_t first_term, const PassOrder& among, std::vector<int> kernel_vectors,
                const base::Workers& on)
      : problem(of),
        pass(one),
        number(which),
        order(among),
        vectors(std::move(kernel_vectors)),
        workers(on),
        pieces_left(one.schedule.cuts.size()),
        poisoned(one.layout(), first_term, one.terms.size()) {
    for (const ForwardPass::Term& term : one.terms) {
      mods.staged = std::max(mods.staged, term.kernels.mods.staged);
      mods.frame = std::max(mods.frame, term.kernels.mods.frame);
    }
  }

  // Whether states of several terms or passes are joined.
  [[nodiscard]] bool joins() const {
    return pass.terms.size() > 1 || order.has_states() || problem.states != nullptr;
  }
};

// What a task of the pass needs at most.
WorkspaceNeed workspace_need(const ForwardShared& shared);

// Bytes of the partial results of one tile and chunk, and of the states of all rows.
std::size_t state_bytes(const plan::TilePlan& plan);
std::size_t row_state_bytes(const ForwardShared& shared);

// `next` is the task that this thread will probably have after it, if there is one.
void run_task(ForwardShared& shared, const plan::Task& task, const plan::Task* next,
              Workspace& workspace);

}  // namespace treadle::run
