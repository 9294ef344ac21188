// Tiles in groups, groups in tasks, long tasks cut at chunk borders.
#include "plan/schedule.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "plan/chunks.h"

namespace treadle::plan {
namespace {

struct TileCost {
  double cost = 0;
  std::int64_t begin = 0, end = 0;  // keys
};

// By batch, head and tile as the layout stores them: one head for all if it does not tell them
// apart.
std::vector<TileCost> measure(const layout::Layout& layout) {
  const std::int64_t batches = layout.per_batch() ? layout.extent().batch : 1;
  const std::int64_t heads = layout.per_head() ? layout.extent().heads : 1;
  std::vector<TileCost> tiles;
  tiles.reserve(static_cast<std::size_t>(batches * heads * layout.tiles().count()));
  for (std::int64_t b = 0; b < batches; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t t = 0; t < layout.tiles().count(); ++t) {
        const auto runs = layout.runs(b, h, t);
        std::int64_t keys = 0;
        for (const layout::Run& run : runs) keys += run.length();
        TileCost tile;
        if (!runs.empty()) tile = {0, runs.front().begin(), runs.back().end()};
        // Reading queries and writing results is worth a few keys.
        tile.cost = static_cast<double>(keys + 8);
        tiles.push_back(tile);
      }
    }
  }
  return tiles;
}

// Most tiles are one part, and most key heads have one head of queries: no divisions for those.
std::int64_t parts_of(const layout::Layout& layout, std::int64_t most_queries) {
  const std::int64_t height = layout.tiles().height();
  return height <= most_queries ? 1 : (height + most_queries - 1) / most_queries;
}

// Threads take tasks in turn. Of those that cost the same, each shall have neighbours, whose rows share
// lines of the cache and pages; neighbours on different threads would fight for them.
void keep_neighbours_together(std::vector<Task>& tasks, std::int64_t threads) {
  const std::vector<Task> sorted = tasks;
  for (std::size_t begin = 0; begin < sorted.size();) {
    const auto differs = [&](const Task& task) { return task.cost != sorted[begin].cost; };
    const auto first = sorted.begin() + static_cast<std::ptrdiff_t>(begin);
    const std::int64_t count = std::find_if(first, sorted.end(), differs) - first;
    std::int64_t taken = 0;
    for (std::int64_t turn = 0; taken < count; ++turn) {
      for (std::int64_t thread = 0; thread < threads; ++thread) {
        const std::int64_t at = count * thread / threads + turn;
        if (at >= count * (thread + 1) / threads) continue;
        tasks[begin + static_cast<std::size_t>(taken++)] = first[at];
      }
    }
    begin += static_cast<std::size_t>(count);
  }
}

}  // namespace

Entry entry_of(const layout::Layout& layout, std::int64_t key_heads, std::int64_t most_queries,
               std::int64_t key_head, std::int64_t entry) {
  const std::int64_t parts = parts_of(layout, most_queries);
  if (parts == 1 && layout.extent().heads == key_heads) {
    return {
        .head = key_head, .tile = entry, .first_query = 0, .queries = layout.tiles().size(entry)};
  }
  const std::int64_t heads = layout.extent().heads / key_heads;
  const std::int64_t tile = entry / heads / parts;
  const std::int64_t first = entry / heads % parts * most_queries;
  return {.head = key_head * heads + entry % heads,
          .tile = tile,
          .first_query = first,
          .queries = std::clamp<std::int64_t>(layout.tiles().size(tile) - first, 0, most_queries)};
}

Schedule schedule(std::span<const layout::Layout* const> layouts, const ScheduleOptions& options) {
  const layout::Layout& layout = *layouts.front();
  const layout::Extent& extent = layout.extent();
  const std::int64_t tile_count = layout.tiles().count();
  Schedule result;
  if (options.key_heads == 0) return result;
  std::vector<std::vector<TileCost>> tiles;
  for (const layout::Layout* one : layouts) tiles.push_back(measure(*one));
  const std::int64_t group = extent.heads / options.key_heads;
  const auto tile_of = [&](std::size_t i, std::int64_t b, std::int64_t head,
                           std::int64_t t) -> const TileCost& {
    const layout::Layout& one = *layouts[i];
    const std::int64_t heads = one.per_head() ? extent.heads : 1;
    const std::int64_t at =
        ((one.per_batch() ? b : 0) * heads + (one.per_head() ? head : 0)) * tile_count + t;
    return tiles[i][static_cast<std::size_t>(at)];
  };

  double total = 0;
  for (std::int64_t b = 0; b < extent.batch; ++b) {
    for (std::int64_t key_head = 0; key_head < options.key_heads; ++key_head) {
      const std::int64_t entries_per_tile = group * parts_of(layout, options.most_queries);
      std::int64_t alike_end = 0;
      for (std::int64_t first = 0; first < entries_per_tile * tile_count;) {
        if (first >= alike_end)
          alike_end = entries_per_tile * layout.tiles().alike_end(first / entries_per_tile);
        Task task{.b = b, .key_head = key_head, .first = first};
        task.count = std::min<std::int64_t>(options.tiles_per_group, alike_end - first);
        std::int64_t begin = extent.keys.end;
        std::int64_t end = 0;
        for (std::int64_t e = first; e < first + task.count; ++e) {
          const Entry entry =
              entry_of(layout, options.key_heads, options.most_queries, key_head, e);
          for (std::size_t i = 0; i < layouts.size(); ++i) {
            const TileCost& tile = tile_of(i, b, entry.head, entry.tile);
            if (entry.queries > 0) task.cost += tile.cost * options.weights.of(entry.queries);
            if (tile.end == 0) continue;
            begin = std::min(begin, tile.begin);
            end = std::max(end, tile.end);
          }
        }
        first += task.count;
        task.chunks = chunks_of({begin, end});
        total += task.cost;
        result.tasks.push_back(task);
      }
    }
  }

  if (options.threads > 1) {
    const double longest = total / (options.threads * pieces_per_thread);
    std::vector<Task> pieces;
    for (const Task& task : result.tasks) {
      const auto wanted =
          !options.may_cut ? 1 : static_cast<std::int64_t>(std::ceil(task.cost / longest));
      const std::int64_t most = std::min(wanted, task.chunks.count());
      if (most <= 1) {
        pieces.push_back(task);
        continue;
      }
      const auto cut = static_cast<std::int64_t>(result.cuts.size());
      result.cuts.push_back({.chunks = task.chunks, .count = task.count});
      const layout::Range keys = keys_of_chunks(task.chunks);
      std::int64_t begin = task.chunks.begin;
      for (std::int64_t i = 1; i <= most; ++i) {
        const std::int64_t end =
            i == most ? task.chunks.end : chunk_of(keys.begin + keys.count() * i / most);
        if (end == begin) continue;  // chunks are not equally long
        Task piece = task;
        piece.chunks = {begin, end};
        piece.cost = task.cost * static_cast<double>(keys_of_chunks(piece.chunks).count()) /
                     static_cast<double>(keys.count());
        piece.cut = cut;
        pieces.push_back(piece);
        ++result.cuts.back().pieces;
        begin = end;
      }
    }
    result.tasks = std::move(pieces);
    std::ranges::sort(result.tasks, [](const Task& a, const Task& b) {
      const auto place = [](const Task& t) {
        return std::tuple(-t.cost, t.b, t.key_head, t.first, t.chunks.begin);
      };
      return place(a) < place(b);
    });
    keep_neighbours_together(result.tasks, options.threads);
  }
  return result;
}

}  // namespace treadle::plan
