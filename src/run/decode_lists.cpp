// Which chunks are kept. Read decode_lists() first.
#include "run/decode_lists.h"

#include <algorithm>
#include <utility>

#include "plan/chunks.h"
#include "run/wanted_keys.h"

namespace treadle::run {
namespace {

using layout::Range;
using layout::Run;

// What two lists of runs show of a range of keys.
bool equal_inside(std::span<const Run> a, std::span<const Run> b, Range keys) {
  const auto parts_of = [&](std::span<const Run> runs) {
    std::vector<Run> parts;
    for (const Run& run : runs_near(runs, keys))
      for (const Run& part : layout::RunPart(run, keys.begin, keys.end)) parts.push_back(part);
    return parts;
  };
  // Most are one long run.
  const auto near_a = runs_near(a, keys), near_b = runs_near(b, keys);
  const auto covers = [&](std::span<const Run> runs) {
    return runs.size() == 1 && runs[0].count() == 1 && runs[0].begin() <= keys.begin &&
           runs[0].end() >= keys.end;
  };
  if (covers(near_a) && covers(near_b)) return near_a[0].full() == near_b[0].full();
  if (near_a.empty() && near_b.empty()) return true;
  return parts_of(a) == parts_of(b);
}

class Maker {
 public:
  Maker(const DecodeProblem& problem, std::int64_t threads, DecodeLists& made)
      : problem_(problem), threads_(threads), made_(made) {}

  void make() {
    made_.sequences.clear();
    made_.kept.clear();
    measure();
    for (const SharedKeys& keys : problem_.shared) share(keys);
    const std::int64_t lists = std::ssize(made_.sequences) * made_.key_heads;
    if (lists < enough_lists * threads_) cut_long_ones();
  }

 private:
  // The lengths of all sequences.
  void measure() {
    if (problem_.sequences.empty()) return;
    const DecodeSequence& first = problem_.sequences.front();
    made_.key_heads = first.problem.keys.heads();
    made_.group = first.layout.extent.heads / made_.key_heads;
    made_.sequences.reserve(problem_.sequences.size());
    for (const DecodeSequence& of : problem_.sequences) {
      DecodeLists::Sequence& sequence = made_.sequences.emplace_back();
      sequence.queries = of.layout.extent.queries.count();
      sequence.rows = made_.group * sequence.queries;
      const std::int64_t heads = of.layout.per_head ? made_.key_heads : 1;
      Range keys{std::int64_t{1} << 40, 0};
      for (std::int64_t key_head = 0; key_head < heads; ++key_head) {
        const auto runs = made_.runs(problem_, std::ssize(made_.sequences) - 1, key_head);
        if (runs.empty()) continue;
        keys.begin = std::min(keys.begin, runs.front().begin());
        keys.end = std::max(keys.end, runs.back().end());
      }
      if (!keys.empty()) sequence.chunks = plan::chunks_of(keys);
    }
  }

  // Whether all sequences look at the same of these keys.
  bool look_alike(const std::vector<std::int64_t>& sequences, Range keys) const {
    const bool per_head = std::ranges::any_of(sequences, [&](std::int64_t s) {
      return problem_.sequences[static_cast<std::size_t>(s)].layout.per_head;
    });
    for (std::int64_t key_head = 0; key_head < (per_head ? made_.key_heads : 1); ++key_head) {
      const auto first = made_.runs(problem_, sequences.front(), key_head);
      for (const std::int64_t other : sequences)
        if (!equal_inside(first, made_.runs(problem_, other, key_head), keys)) return false;
    }
    return true;
  }

  void share(const SharedKeys& given) {
    if (given.end <= 0) return;
    KeptChunks kept{.shared = &given, .chunks = {}, .end = given.end, .kernels = given.kernels};
    kept.chunks = plan::chunks_of(Range(given.end));
    for (std::int64_t chunk = 0; chunk < kept.chunks.end; ++chunk) {
      Range keys = plan::keys_of_chunk(chunk);
      keys.end = std::min(keys.end, given.end);
      if (look_alike(given.sequences, keys)) continue;
      kept.chunks.end = chunk;
      kept.end = keys.begin;
    }
    if (kept.chunks.empty()) return;
    for (const std::int64_t number : given.sequences) {
      DecodeLists::Sequence& sequence = made_.sequences[static_cast<std::size_t>(number)];
      sequence.shared = std::ssize(made_.kept);
      sequence.shared_row = kept.rows;
      kept.rows += sequence.rows;
    }
    made_.kept.push_back(kept);
  }

  void cut_long_ones() {
    for (std::size_t i = 0; i < made_.sequences.size(); ++i) {
      DecodeLists::Sequence& sequence = made_.sequences[i];
      Range chunks = sequence.chunks;
      if (sequence.shared >= 0) {
        const Range shared = made_.kept[static_cast<std::size_t>(sequence.shared)].chunks;
        chunks.begin = std::max(chunks.begin, shared.end);
      }
      if (chunks.count() <= 1) continue;
      sequence.own = std::ssize(made_.kept);
      made_.kept.push_back({.sequence = static_cast<std::int64_t>(i),
                            .chunks = chunks,
                            .end = plan::keys_of_chunk(chunks.end - 1).end,
                            .rows = sequence.rows,
                            .kernels = &problem_.sequences[i].kernels});
    }
  }

  const DecodeProblem& problem_;
  std::int64_t threads_;
  DecodeLists& made_;
};

}  // namespace

std::span<const Run> DecodeLists::runs(const DecodeProblem& problem, std::int64_t sequence,
                                       std::int64_t key_head) const {
  const DecodeSequence& of = problem.sequences[static_cast<std::size_t>(sequence)];
  return of.layout.runs(of.layout_entry, key_head * group);
}

void decode_lists(const DecodeProblem& problem, std::int64_t threads, DecodeLists& made) {
  Maker(problem, threads, made).make();
}

}  // namespace treadle::run
