// Forward: passes over the queries, one after the other: phases of its work (run/work.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "layout/layout.h"
#include "plan/dropout_args.h"
#include "plan/schedule.h"
#include "run/forward_kernels.h"
#include "run/key_source.h"
#include "run/pass_order.h"
#include "run/poisoned.h"
#include "run/row_states.h"
#include "run/scratch.h"
#include "run/work.h"
#include "treadle/view.h"

namespace treadle::run {

struct ForwardProblem {
  ConstView q;  // [B, Hq, Sq, D], last stride 1
  const KeySource& keys;
  View out;                      // [B, Hq, Sq, Dv] of q's type, last stride 1
  std::optional<View> lse, max;  // [B, Hq, Sq] of the compute type
  double scale = 1;
  std::vector<std::int64_t> score_captures;  // plan/capture_descriptors.h
  std::span<const double> sinks;             // of each head, or none
  plan::DropoutArgs dropout;                 // of kernels that drop weights
  // If given, rows are left there as states, and out, lse and max are not written. Of one pass.
  const StateViews* states = nullptr;

  [[nodiscard]] const double* sink(std::int64_t h) const {
    return sinks.empty() ? nullptr : &sinks[static_cast<std::size_t>(h)];
  }
};

// Terms of the mask that are looked at with the same tiles of queries, in their order; for most
// masks there is one, which shows all pairs.
struct ForwardPass {
  struct Term {
    const ForwardKernels& kernels;
    const layout::Layout& layout;
    std::vector<std::int64_t> mask_captures;
    // Keys were listed by the caller: what runs call full is visible whatever the mask says.
    bool listed = false;
  };
  std::vector<Term> terms;
  plan::Schedule schedule;  // of their layouts; without cuts if there are several terms or passes

  // What all of them have alike: tiles, and kernels that do not look at the mask.
  [[nodiscard]] const layout::Layout& layout() const { return terms.front().layout; }
  [[nodiscard]] const ForwardKernels& kernels() const { return terms.front().kernels; }
  [[nodiscard]] const ForwardKernels::OfTile& widest() const { return kernels().widest(); }

  // Whether kernels of some term fetch rows ahead.
  [[nodiscard]] bool is_sparse() const {
    return std::ranges::any_of(terms,
                               [](const Term& term) { return term.kernels.widest().plan.sparse; });
  }

  [[nodiscard]] std::vector<const layout::Layout*> layouts() const {
    std::vector<const layout::Layout*> all;
    for (const Term& term : terms) all.push_back(&term.layout);
    return all;
  }
};

struct ForwardShared;

// What terms show is merged in their order, pass after pass. What it is given outlives it.
class ForwardWork final : public Work {
 public:
  ForwardWork(std::span<const ForwardPass> passes, const ForwardProblem& problem,
              const base::Workers& workers, Scratch& scratch);
  ~ForwardWork() override;

  [[nodiscard]] int phases() const override { return static_cast<int>(all_.size()); }
  [[nodiscard]] std::int64_t count(int phase) const override;
  [[nodiscard]] double cost(int phase, std::int64_t item) const override;
  [[nodiscard]] int stage(int phase, std::int64_t item) const override;
  [[nodiscard]] WorkspaceNeed need() const override { return need_; }
  void run(int phase, std::int64_t item, std::int64_t next, Workspace& workspace) override;
  [[nodiscard]] bool failed() const override { return poisoned().has_value(); }

  // The first poisoned tile of a pass, if there is one.
  [[nodiscard]] std::optional<Poisoned> poisoned() const;

 private:
  const PassOrder order_;
  std::vector<std::unique_ptr<ForwardShared>> all_;  // by pass
  WorkspaceNeed need_;
  std::optional<Scratch::Share> between_;  // what cut tasks and passes leave to one another
};

// All of it. The first poisoned tile, if there is one.
std::optional<Poisoned> forward(std::span<const ForwardPass> passes, const ForwardProblem& problem,
                                const base::Workers& workers, Scratch& scratch);

// Bytes of a thread's workspace that no task of such calls exceeds. `mods` is that of
// ForwardKernels; `joins`: the mask may have several terms.
std::int64_t forward_scratch(const plan::TilePlan& widest, int tiles_per_group,
                             const plan::ModScratch& mods, bool joins);
// Bytes that cut tasks keep for one another, for each thread and at most: of all chunks of so many
// tiles.
std::int64_t forward_cut_bytes(const plan::TilePlan& widest, std::int64_t tiles,
                               std::int64_t chunks);
// Bytes that passes keep of rows, once for a call; as many as there are numbers for, if they are more.
std::int64_t forward_row_bytes(DType compute, std::int64_t rows, std::int64_t value_dim);

}  // namespace treadle::run
