// Phases one after the other, the items of each handed to threads.
#include "run/work.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace treadle::run {
namespace {

struct Item {
  Work* work;
  std::int64_t number;
  int stage;
  double cost;
  std::int64_t place;  // equal ones stay in their order
};

}  // namespace

void run(std::span<Work* const> works, const base::Workers& workers, Scratch& scratch) {
  int phases = 0;
  WorkspaceNeed need;
  std::int64_t most = 0;
  for (const Work* work : works) {
    phases = std::max(phases, work->phases());
    need.cover(work->need());
  }
  const auto count = [](const Work* work, int phase) {
    return phase < work->phases() ? work->count(phase) : 0;
  };
  std::vector<std::vector<Item>> merged(static_cast<std::size_t>(works.size() > 1 ? phases : 0));
  for (int phase = 0; phase < phases; ++phase) {
    std::int64_t items = 0;
    for (Work* work : works) {
      for (std::int64_t i = 0; !merged.empty() && i < count(work, phase); ++i)
        merged[static_cast<std::size_t>(phase)].push_back(
            {work, i, work->stage(phase, i), work->cost(phase, i), items + i});
      items += count(work, phase);
    }
    most = std::max(most, items);
    if (!merged.empty())
      std::ranges::sort(merged[static_cast<std::size_t>(phase)], {}, [](const Item& item) {
        return std::tuple(item.stage, -item.cost, item.place);
      });
  }
  Scratch::Share share(scratch, std::min<std::int64_t>(most, workers.threads()), need);
  // From here on nothing is allocated: results are written.
  for (int phase = 0; phase < phases; ++phase) {
    if (merged.empty()) {
      Work& only = *works.front();
      const std::int64_t items = count(&only, phase);
      base::parallel_for(workers, items, [&](std::int64_t i) {
        const Scratch::Lease workspace = share.lend();
        // Threads begin items in turn, as long as those take equally long.
        const std::int64_t next = i + workers.threads();
        only.run(phase, i, next < items ? next : -1, *workspace);
      });
      if (only.failed()) return;
      continue;
    }
    const std::vector<Item>& items = merged[static_cast<std::size_t>(phase)];
    base::parallel_for(workers, std::ssize(items), [&](std::int64_t i) {
      const Item& item = items[static_cast<std::size_t>(i)];
      if (phase > 0 && item.work->failed()) return;
      const Scratch::Lease workspace = share.lend();
      item.work->run(phase, item.number, -1, *workspace);
    });
  }
}

}  // namespace treadle::run
