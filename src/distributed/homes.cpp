// Counts the rows of leaves rank by rank.
#include "distributed/homes.h"

#include <algorithm>

#include "distributed/work.h"

namespace treadle::distributed {
namespace {

// position, position + step, ...: so many rows.
void add_line(std::vector<RowsOfRank>& rows, std::int64_t position, std::int64_t step,
              std::int64_t count, const Shards& shards) {
  while (count > 0) {
    const int owner = shards.owner(position);
    const std::int64_t here = std::min(count, (shards.end(owner) - position + step - 1) / step);
    if (!rows.empty() && rows.back().rank == owner) {
      rows.back().rows += here;
    } else {
      rows.push_back({owner, here});
    }
    position += here * step;
    count -= here;
  }
}

}  // namespace

std::vector<RowsOfRank> rows_of(const layout::Tiles& tiles, layout::Range some,
                                const Shards& shards) {
  std::vector<RowsOfRank> lines;
  for (std::int64_t tile = some.begin; tile < some.end; ++tile) {
    const passes::Axis& axis = tiles.axis(tile);
    for (std::int64_t outer = 0; outer < axis.outer_count; ++outer)
      add_line(lines, axis.low + outer * axis.outer_step, std::max<std::int64_t>(axis.step, 1),
               axis.count, shards);
  }
  std::ranges::stable_sort(lines, {}, &RowsOfRank::rank);
  std::vector<RowsOfRank> rows;
  for (const RowsOfRank& line : lines) {
    if (!rows.empty() && rows.back().rank == line.rank) {
      rows.back().rows += line.rows;
    } else {
      rows.push_back(line);
    }
  }
  return rows;
}

Homes::Homes(const layout::Tiles& tiles, std::int64_t tiles_per_leaf, const Shards& shards) {
  for (std::int64_t leaf = 0; leaf < leaves_of(tiles.count(), tiles_per_leaf); ++leaf) {
    const std::vector<RowsOfRank> rows =
        rows_of(tiles, tiles_of({leaf, leaf + 1}, tiles.count(), tiles_per_leaf), shards);
    rows_.insert(rows_.end(), rows.begin(), rows.end());
    first_.push_back(rows_.size());
  }
}

std::vector<std::size_t> tilings_of(const std::vector<layout::Tiles>& tiles,
                                    std::span<const std::int64_t> tiles_per_leaf) {
  std::vector<std::size_t> first;
  for (std::size_t pass = 0; pass < tiles.size(); ++pass) {
    std::size_t same = 0;
    while (tiles_per_leaf[same] != tiles_per_leaf[pass] || !(tiles[same] == tiles[pass])) ++same;
    first.push_back(same);
  }
  return first;
}

int home_part(std::span<const RowsOfRank> rows, int ranks_per_part) {
  std::int64_t all = 0, most = 0, here = 0;
  int best = -1, part = -1;
  for (const RowsOfRank& one : rows) {
    if (one.rank / ranks_per_part != part) here = 0;
    part = one.rank / ranks_per_part;
    all += one.rows;
    here += one.rows;
    if (here > most) {
      most = here;
      best = part;
    }
  }
  return 2 * most >= all ? best : -1;
}

}  // namespace treadle::distributed
