// Packs pieces of keys into runs, and cuts runs.
//
// In: pieces in ascending order. Out: the one list of runs that stands for them. Read place()
// first.
#include "layout/run.h"

#include <fmt/format.h>

namespace treadle::layout {
namespace {

// A piece that does not touch the last one of its kind.
void place(std::vector<Run>& runs, Range piece, bool full) {
  if (!runs.empty()) {
    Run& last = runs.back();
    const bool alike = last.width() == piece.count() && last.full() == full;
    const bool continues = last.count() == 1 || last.piece(last.count()).begin == piece.begin;
    if (alike && continues) {
      const std::int64_t step = last.count() == 1 ? piece.begin - last.begin() : last.step();
      last = Run::stepped({last.begin(), last.width(), step, last.count() + 1}, full);
      return;
    }
  }
  runs.emplace_back(piece.begin, piece.end, full);
}

}  // namespace

void append(std::vector<Run>& runs, std::int64_t begin, std::int64_t end, bool full) {
  if (begin >= end) return;
  if (!runs.empty() && runs.back().end() == begin && runs.back().full() == full) {
    // It touches the last piece. A wider one may belong to another run.
    Run& last = runs.back();
    begin = last.piece(last.count() - 1).begin;
    if (last.count() == 1) {
      runs.pop_back();
    } else {
      last = last.pieces(0, last.count() - 1);
    }
  }
  place(runs, {begin, end}, full);
}

void append(std::vector<Run>& runs, const Run& run) {
  // The first piece may widen what is there, and the second begin a run of its own; after the
  // third, the last run has two pieces of this step at least, and all others continue it.
  const std::int64_t first = std::min<std::int64_t>(run.count(), 3);
  for (std::int64_t i = 0; i < first; ++i)
    append(runs, run.piece(i).begin, run.piece(i).end, run.full());
  if (first == run.count()) return;
  Run& last = runs.back();
  last = Run::stepped({last.begin(), last.width(), last.step(), last.count() + run.count() - first},
                      run.full());
}

RunPart::RunPart(const Run& run, std::int64_t begin, std::int64_t end) {
  if (begin >= end) return;
  std::int64_t first = run.pieces_before(begin);
  std::int64_t last = run.pieces_before(end);  // the first one that is not whole
  if (first < run.count() && run.piece(first).begin < begin) {
    add({begin, std::min(run.piece(first).end, end), run.full()});
    ++first;
  }
  if (first < last) add(run.pieces(first, last - first));
  last = std::max(first, last);
  if (last < run.count() && run.piece(last).begin < end)
    add({run.piece(last).begin, end, run.full()});
}

std::string to_text(const Run& run) {
  const std::string steps =
      run.count() == 1 ? "" : fmt::format("step {} width {} ", run.step(), run.width());
  return fmt::format("[{}, {}) {}{}", run.begin(), run.end(), steps,
                     run.full() ? "full" : "partial");
}

}  // namespace treadle::layout
