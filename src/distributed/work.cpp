// Counts the pairs of leaves, and gathers the keys that they look at. Read work_of() first.
#include "distributed/work.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "backend/held_layout.h"
#include "base/error.h"
#include "distributed/bytes.h"
#include "plan/chunks.h"

namespace treadle::distributed {
namespace {

using layout::Layout;
using layout::Range;
using layout::Run;

// A list has at most about twice as many runs: enough for the random blocks of a leaf, few enough for
// lists of a million queries to travel to every rank.
constexpr std::size_t most_runs = 64;
constexpr std::int64_t few_pieces = 8;
constexpr std::int64_t longest = std::numeric_limits<std::int32_t>::max();  // of sequences

// Adds the pairs of a tile, so many for each key.
void count_pairs(std::span<std::int64_t> pairs, std::span<PassWork::TileSpan> tiles,
                 std::int64_t tile, std::span<const Run> runs, Range keys, std::int64_t rows) {
  const Range all = plan::chunks_of(keys);
  for (const Run& run : runs) {
    const Range chunks = plan::chunks_of({run.begin(), run.end()});
    std::int64_t before = 0;
    for (std::int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
      const std::int64_t until =
          chunk + 1 == chunks.end ? run.length() : run.keys_before(plan::keys_of_chunk(chunk).end);
      if (until == before) continue;
      const auto at = static_cast<std::size_t>(chunk - all.begin);
      pairs[at] += (until - before) * rows;
      before = until;
      PassWork::TileSpan& span = tiles[at];
      const auto number = static_cast<std::uint16_t>(tile);
      if (span.begin == span.end) span.begin = number;
      span.begin = std::min(span.begin, number);
      span.end = std::max(span.end, static_cast<std::uint16_t>(number + 1));
    }
  }
}

// Ranges that ascend by their beginnings, joined where they touch.
std::vector<Range> joined(std::vector<Range> ranges) {
  std::ranges::sort(ranges, {}, [](const Range& range) { return range.begin; });
  std::vector<Range> joined;
  for (const Range& range : ranges) {
    if (!joined.empty() && range.begin <= joined.back().end) {
      joined.back().end = std::max(joined.back().end, range.end);
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

// Closes the smallest gaps if there are too many.
std::vector<Range> few(std::vector<Range> ranges) {
  if (ranges.size() <= most_runs) return ranges;
  std::vector<std::int64_t> gaps;
  for (std::size_t i = 1; i < ranges.size(); ++i)
    gaps.push_back(ranges[i].begin - ranges[i - 1].end);
  const auto last = gaps.end() - static_cast<std::ptrdiff_t>(most_runs);
  std::ranges::nth_element(gaps, last);
  const std::int64_t closed = *last;
  std::vector<Range> few{ranges.front()};
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin - few.back().end <= closed) {
      few.back().end = ranges[i].end;
    } else {
      few.push_back(ranges[i]);
    }
  }
  return few;
}

// The same keys, each once, as far as that takes few runs.
std::vector<Run> united(const std::vector<Run>& runs) {
  std::vector<Range> plain;
  std::vector<Run> stepped;
  for (const Run& run : runs) {
    // More than half of such keys are as good as all.
    if (run.count() == 1 || 2 * run.width() > run.step()) {
      plain.emplace_back(run.begin(), run.end());
    } else if (run.count() <= few_pieces) {  // which happen to lie so
      for (std::int64_t i = 0; i < run.count(); ++i) plain.push_back(run.piece(i));
    } else {
      stepped.push_back(run);
    }
  }
  const auto kind = [](const Run& run) {
    return std::tuple(run.step(), run.width(), run.begin() % run.step(), run.begin());
  };
  std::ranges::sort(stepped, {}, kind);
  std::vector<Run> apart;
  for (const Run& run : stepped) {
    if (!apart.empty()) {
      const Run& last = apart.back();
      const bool alike = last.step() == run.step() && last.width() == run.width() &&
                         (run.begin() - last.begin()) % run.step() == 0;
      if (alike && run.begin() <= last.begin() + last.count() * last.step()) {
        const std::int64_t count =
            std::max(last.count(), (run.begin() - last.begin()) / run.step() + run.count());
        apart.back() = Run::stepped(
            {.begin = last.begin(), .width = last.width(), .step = last.step(), .count = count},
            false);
        continue;
      }
    }
    apart.push_back(Run::stepped(
        {.begin = run.begin(), .width = run.width(), .step = run.step(), .count = run.count()},
        false));
  }
  if (apart.size() > most_runs) {
    for (const Run& run : apart) plain.emplace_back(run.begin(), run.end());
    apart.clear();
  }
  std::vector<Run> united;
  for (const Range& range : few(joined(std::move(plain))))
    united.emplace_back(range.begin, range.end, false);
  united.insert(united.end(), apart.begin(), apart.end());
  return united;
}

}  // namespace

Range tiles_of(Range leaves, std::int64_t tiles, std::int64_t tiles_per_leaf) {
  return {std::min(leaves.begin * tiles_per_leaf, tiles),
          std::min(leaves.end * tiles_per_leaf, tiles)};
}

PassWork work_of(const Layout& layout, std::int64_t tiles_per_leaf, std::int64_t key_heads,
                 const base::Workers& workers) {
  const layout::Extent& extent = layout.extent();
  const layout::Tiles& tiles = layout.tiles();
  const std::int64_t per_key_head = extent.heads / key_heads;
  if (tiles_per_leaf > std::numeric_limits<std::uint16_t>::max())
    base::internal_error("a leaf of {} tiles", tiles_per_leaf);
  PassWork work;
  work.leaves = leaves_of(tiles.count(), tiles_per_leaf);
  work.chunks = plan::chunks_of(extent.keys).count();
  if (layout.per_batch()) work.batch_lists = extent.batch;
  if (layout.per_head()) work.head_lists = key_heads;
  const std::int64_t lists = work.leaves * work.batch_lists * work.head_lists;
  work.pairs.resize(static_cast<std::size_t>(lists * work.chunks));
  work.tiles.resize(work.pairs.size());
  work.keys.resize(static_cast<std::size_t>(lists));
  base::parallel_for(workers, work.leaves, [&](std::int64_t leaf) {
    const Range own = tiles_of({leaf, leaf + 1}, tiles.count(), tiles_per_leaf);
    std::vector<Run> runs;
    for (std::int64_t b = 0; b < work.batch_lists; ++b) {
      for (std::int64_t key_head = 0; key_head < work.head_lists; ++key_head) {
        const std::size_t list = work.list(leaf, b, key_head);
        const std::span<std::int64_t> pairs(
            work.pairs.data() + list * static_cast<std::size_t>(work.chunks),
            static_cast<std::size_t>(work.chunks));
        const std::span<PassWork::TileSpan> spans(
            work.tiles.data() + list * static_cast<std::size_t>(work.chunks), pairs.size());
        runs.clear();
        for (std::int64_t head = 0; head < (layout.per_head() ? per_key_head : 1); ++head) {
          for (std::int64_t tile = own.begin; tile < own.end; ++tile) {
            const auto of_tile = layout.runs(b, key_head * per_key_head + head, tile);
            const std::int64_t heads = layout.per_head() ? 1 : per_key_head;
            count_pairs(pairs, spans, tile - own.begin, of_tile, extent.keys,
                        tiles.size(tile) * heads);
            runs.insert(runs.end(), of_tile.begin(), of_tile.end());
          }
        }
        work.keys[list] = united(runs);
      }
    }
  });
  work.chunk_work = plan::chunk_work(layout);
  return work;
}

PassWork work_of(const backend::QueryPasses& passes, std::size_t pass, const backend::Sizes& sizes,
                 Range leaves, const base::Workers& workers) {
  // Enough for all threads, and little to hold.
  constexpr std::int64_t at_once = 256;
  const layout::Tiles tiles = passes.tiles(pass);
  const std::int64_t per_leaf = passes.tiles_per_leaf(pass);
  PassWork work;
  work.chunks = plan::chunks_of(sizes.keys).count();
  for (std::int64_t first = leaves.begin; first < leaves.end; first += at_once) {
    const Range some{first, std::min(first + at_once, leaves.end)};
    const Range of_some = tiles_of(some, tiles.count(), per_leaf);
    const treadle::Layout built =
        passes.build(pass, sizes.extent(), tiles.some(std::span(&of_some, 1)), workers);
    work.append(work_of(built.held()->terms.front().layout, per_leaf, sizes.key_heads, workers));
  }
  return work;
}

void PassWork::append(const PassWork& later) {
  if (leaves == 0) {
    *this = later;
    return;
  }
  if (later.leaves == 0) return;
  if (later.chunks != chunks || later.batch_lists != batch_lists || later.head_lists != head_lists)
    base::internal_error("work of {} x {} lists of {} chunks is followed by {} x {} of {}",
                         batch_lists, head_lists, chunks, later.batch_lists, later.head_lists,
                         later.chunks);
  leaves += later.leaves;
  pairs.insert(pairs.end(), later.pairs.begin(), later.pairs.end());
  tiles.insert(tiles.end(), later.tiles.begin(), later.tiles.end());
  keys.insert(keys.end(), later.keys.begin(), later.keys.end());
  chunk_work.keys += later.chunk_work.keys;
  chunk_work.looked_at += later.chunk_work.looked_at;
}

std::vector<std::byte> PassWork::to_bytes() const {
  Writer to;
  to.put(
      std::array{leaves, chunks, batch_lists, head_lists, chunk_work.keys, chunk_work.looked_at});
  for (std::size_t list = 0; list < keys.size(); ++list) {
    std::vector<Run::Pieces> runs;
    for (const Run& run : keys[list])
      runs.push_back({run.begin(), run.width(), run.step(), run.count()});
    to.put_list(runs);
    // Most lists look at few chunks.
    const auto of_list = pairs_of(list);
    std::size_t begin = 0, end = of_list.size();
    while (begin < end && of_list[begin] == 0) ++begin;
    while (begin < end && of_list[end - 1] == 0) --end;
    to.put(static_cast<std::int64_t>(begin));
    to.put_list(std::vector(of_list.begin() + static_cast<std::ptrdiff_t>(begin),
                            of_list.begin() + static_cast<std::ptrdiff_t>(end)));
    to.put(tiles_of(list).subspan(begin, end - begin));
  }
  return to.take();
}

PassWork PassWork::from_bytes(std::span<const std::byte> bytes) {
  Reader from(bytes);
  PassWork work;
  for (std::int64_t* number : {&work.leaves, &work.chunks, &work.batch_lists, &work.head_lists,
                               &work.chunk_work.keys, &work.chunk_work.looked_at})
    *number = from.get<std::int64_t>();
  // Each list takes at least three numbers, so what is announced cannot be more than what came.
  const auto most = static_cast<std::int64_t>(bytes.size() / (3 * sizeof(std::int64_t)));
  const bool sound =
      work.leaves >= 0 && work.leaves <= most && work.chunks >= 0 &&
      work.chunks <= plan::chunk_of(longest) + 1 && work.batch_lists >= 1 && work.head_lists >= 1 &&
      (work.leaves == 0 || (work.batch_lists <= most / work.leaves &&
                            work.head_lists <= most / work.leaves / work.batch_lists));
  if (!sound)
    base::internal_error("a message of {} bytes announces {} leaves of {} x {} lists", bytes.size(),
                         work.leaves, work.batch_lists, work.head_lists);
  const auto lists = static_cast<std::size_t>(work.leaves * work.batch_lists * work.head_lists);
  const auto chunks = static_cast<std::size_t>(work.chunks);
  work.pairs.reserve(lists * chunks);
  work.tiles.reserve(lists * chunks);
  for (std::size_t list = 0; list < lists; ++list) {
    std::vector<Run>& runs = work.keys.emplace_back();
    for (const Run::Pieces& run : from.get_list<Run::Pieces>()) {
      const auto within = [](std::int64_t number) { return number >= 0 && number <= longest; };
      if (!within(run.begin) || !within(run.width) || !within(run.step) || !within(run.count) ||
          run.width == 0 || run.count == 0 || run.begin + (run.count - 1) * run.step > longest)
        base::internal_error("a message has {} x {} keys from {} in steps of {}", run.count,
                             run.width, run.begin, run.step);
      runs.push_back(Run::stepped(run, false));
    }
    const auto begin = static_cast<std::size_t>(from.get<std::int64_t>());
    const auto some = from.get_list<std::int64_t>();
    if (begin > chunks || some.size() > chunks - begin)
      base::internal_error("a message has pairs of chunk {} of {}", begin + some.size(), chunks);
    work.pairs.resize(list * chunks + begin);
    work.pairs.insert(work.pairs.end(), some.begin(), some.end());
    work.pairs.resize((list + 1) * chunks);
    work.tiles.resize(list * chunks + begin);
    for (std::size_t i = 0; i < some.size(); ++i) work.tiles.push_back(from.get<TileSpan>());
    work.tiles.resize((list + 1) * chunks);
  }
  if (!from.done()) base::internal_error("a message of work is longer than its lists");
  return work;
}

}  // namespace treadle::distributed
