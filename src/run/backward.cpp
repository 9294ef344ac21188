// A backward call: terms of every query first, then passes, their groups of tasks handed to threads.
#include "run/backward.h"

#include <algorithm>
#include <memory>

#include "base/parallel.h"
#include "run/backward_worker.h"

namespace treadle::run {
namespace {

// On all threads: the gradient of a bias of all pairs is larger than anything else in a call.
template <class F>
void clear(const CapturedSum& captured, const base::Workers& workers) {
  constexpr std::int64_t piece = std::int64_t{1} << 18;
  base::parallel_for(workers, (captured.count + piece - 1) / piece, [&](std::int64_t i) {
    std::fill_n(static_cast<F*>(captured.sum) + i * piece,
                std::min(piece, captured.count - i * piece), F{0});
  });
}

// What a pass adds to gradients of captures, where several of its pairs add to one element of the
// sum itself: like all that passes find it is complete before it is added to the passes before, so
// that it does not matter who finds it. The sums are those of the problem.
template <class F>
class OwnSums {
 public:
  OwnSums(BackwardProblem& problem, bool first) {
    if (first) return;
    const std::int64_t heads = problem.q.size(1), batch = problem.q.size(0);
    for (CapturedSum& captured : problem.captured) {
      const plan::CaptureReach& reach = captured.reach;
      const bool one_pair = (reach.by_head || heads == 1) && (reach.by_batch || batch == 1);
      const bool leaves_apart = reach.by_batch || batch == 1 || problem.keys.batch() > 1;
      if (!reach.by_key || !reach.by_query || !leaves_apart || one_pair) continue;
      own_.push_back({std::vector<F>(static_cast<std::size_t>(captured.count)), captured.sum});
      captured.sum = own_.back().values.data();
    }
  }
  void add() const {
    for (const Own& own : own_) {
      F* to = static_cast<F*>(own.to);
      for (std::size_t i = 0; i < own.values.size(); ++i) to[i] += own.values[i];
    }
  }

 private:
  struct Own {
    std::vector<F> values;
    void* to = nullptr;
  };
  std::vector<Own> own_;
};

// How many sums of dQ tasks put together: one per tile, or part of a tile that is too high for a
// kernel.
std::int64_t places_of(const BackwardPass& pass) {
  if (pass.schedule.completes_dq) return 0;
  const layout::Layout& layout = pass.layout;
  const std::int64_t width = pass.kernels.plan.width();
  const std::int64_t parts = (layout.tiles().height() + width - 1) / width;
  return layout.extent().batch * layout.extent().heads * layout.tiles().count() * parts;
}

template <class F>
BackwardDone run(std::span<const BackwardPass> passes, const BackwardProblem& problem,
                 Nonfinite nonfinite, const base::Workers& workers, Scratch& scratch) {
  const std::int64_t rows = problem.q.size(0) * problem.q.size(1) * problem.q.size(2);
  const auto size_of_dq = [](const BackwardPass& pass) {
    return pass.kernels.plan.width() * pass.kernels.plan.dim;
  };
  std::int64_t most = 0;
  for (const BackwardPass& pass : passes) most = std::max(most, places_of(pass) * size_of_dq(pass));
  F* sums = nullptr;
  RowTerms<F> terms;
  const auto carve = [&](Carver& carver) {
    terms = {carver.take<F>(rows), carver.take<F>(rows)};
    sums = carver.take<F>(most);
  };
  const Scratch::Share room(scratch, 1, {.bytes = static_cast<std::size_t>(measured(carve))});
  Carver carver(room.front().memory());
  carve(carver);

  std::vector<std::unique_ptr<BackwardShared<F>>> all;
  std::vector<BackwardProblem> problems(passes.size(), problem);  // which differ in some sums
  std::vector<OwnSums<F>> own_sums;
  std::int64_t threads = 0;
  WorkspaceNeed need;
  for (const BackwardPass& pass : passes) {
    const bool adds = !all.empty();
    const plan::BackwardSchedule& schedule = pass.schedule;
    const auto groups = static_cast<std::int64_t>(schedule.groups.size());
    threads = std::max(threads, std::min<std::int64_t>(groups, workers.threads()));
    BackwardProblem& own = problems[all.size()];
    own_sums.emplace_back(own, all.empty());
    all.push_back(std::make_unique<BackwardShared<F>>(
        pass, all.size(), own, nonfinite,
        typename OrderedSums<F>::Parts{sums, places_of(pass), size_of_dq(pass), schedule.chunks},
        terms, workers));
    for (const CapturedSum& captured : problem.captured) {
      all.back()->captured.push_back(
          captured.reach.by_key
              ? nullptr
              : std::make_unique<OrderedSums<F>>(typename OrderedSums<F>::Parts{
                    static_cast<F*>(captured.sum), 1, captured.count, schedule.tasks, adds}));
    }
    need.cover(workspace_need(*all.back()));
    need.bytes = std::max(need.bytes, static_cast<std::size_t>(term_scratch<F>(pass.kernels.plan)));
    if (problem.keys.needs_copy(pass.kernels.plan.keys.element)) {
      pass.kernels.load_k.prepare();
      pass.kernels.load_v.prepare();
    }
  }
  Scratch::Share share(scratch, threads, need);
  find_terms(terms, passes.front().kernels, problem, workers, share);
  // From here on nothing is allocated that the call cannot do without: results are written.
  for (const CapturedSum& captured : problem.captured)
    if (captured.clear) clear<F>(captured, workers);
  bool nan = false;
  for (const auto& shared : all) {
    // Groups begin in their order: few parts come early, and who has no memory for one may wait.
    const auto& groups = shared->schedule.groups;
    base::parallel_for(workers, static_cast<std::int64_t>(groups.size()), [&](std::int64_t i) {
      try {
        const Scratch::Lease workspace = share.lend();
        const auto number = static_cast<std::size_t>(i);
        // Threads begin groups in turn, as long as those take equally long.
        const std::size_t after = number + static_cast<std::size_t>(workers.threads());
        for (std::size_t t = 0; t < groups[number].size(); ++t) {
          const plan::BackwardTask* next = t + 1 < groups[number].size() ? &groups[number][t + 1]
                                           : after < groups.size()       ? &groups[after].front()
                                                                         : nullptr;
          run_task(*shared, groups[number][t], next, *workspace);
        }
      } catch (...) {
        shared->give_up();
        throw;
      }
    });
    own_sums[static_cast<std::size_t>(&shared - all.data())].add();
    nan = nan || shared->nan;
    if (const auto poisoned = shared->poisoned.found()) return {.poisoned = poisoned, .nan = nan};
    if (nan && nonfinite == Nonfinite::fast) break;  // the rest will be computed again, too
  }
  return {.poisoned = std::nullopt, .nan = nan};
}

}  // namespace

BackwardDone backward(std::span<const BackwardPass> passes, const BackwardProblem& problem,
                      Nonfinite nonfinite, const base::Workers& workers, Scratch& scratch) {
  return passes.front().kernels.plan.compute == DType::f64
             ? run<double>(passes, problem, nonfinite, workers, scratch)
             : run<float>(passes, problem, nonfinite, workers, scratch);
}

}  // namespace treadle::run
