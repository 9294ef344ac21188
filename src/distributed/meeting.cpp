// Parts of cut leaves paired.
#include "distributed/meeting.h"

#include <algorithm>
#include <map>
#include <optional>

namespace treadle::distributed {
namespace {

using layout::Range;

Range common(Range a, Range b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }
Range shifted(Range range, std::int64_t by) { return {range.begin - by, range.end - by}; }

}  // namespace

std::vector<Meeting> find_meetings(std::span<const Piece> pieces,
                                   const std::vector<PassPlan>& passes, Range chunks,
                                   std::int64_t per_key_head, int rank) {
  // Numbers of pieces among those of their rank, and the cut ones.
  std::map<int, std::size_t> parts_of;
  std::vector<std::size_t> numbers, joining, cut;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    numbers.push_back(parts_of[pieces[i].rank]++);
    if (pieces[i].chunks == chunks) continue;
    (pieces[i].chunks.empty() ? joining : cut).push_back(i);
  }
  std::map<std::size_t, PartShape> shapes;
  const auto shape = [&](std::size_t i) -> const PartShape& {
    const auto at = shapes.find(i);
    return at != shapes.end()
               ? at->second
               : shapes.emplace(i, shape_of(pieces[i], passes, chunks)).first->second;
  };
  std::vector<Meeting> all;
  for (const std::size_t c : cut) {
    for (const std::size_t j : joining) {
      const Piece &a = pieces[c], &b = pieces[j];
      if ((a.rank != rank && b.rank != rank) || a.pass != b.pass) continue;
      const Range batch = common(a.batch, b.batch), key_heads = common(a.key_heads, b.key_heads);
      if (batch.empty() || key_heads.empty() || common(a.leaves, b.leaves).empty()) continue;
      const PartShape &of_cut = shape(c), &joins = shape(j);
      const Range tiles = common(of_cut.numbers, joins.numbers);
      if (tiles.empty()) continue;
      const auto row = [&](const PartShape& part, std::int64_t tile) {
        return part.tiles.row(tile - part.numbers.begin, 0);
      };
      const std::int64_t last = tiles.end - 1;
      const std::int64_t count = row(of_cut, last) +
                                 of_cut.tiles.size(last - of_cut.numbers.begin) -
                                 row(of_cut, tiles.begin);
      all.push_back({.cut_rank = a.rank,
                     .joining_rank = b.rank,
                     .cut = numbers[c],
                     .joining = numbers[j],
                     .chunk = a.chunks.begin,
                     .slices = of_cut.slice_count(),
                     .batch = batch,
                     .heads = {key_heads.begin * per_key_head, key_heads.end * per_key_head},
                     .rows = {row(joins, tiles.begin), 1, count, row(of_cut, tiles.begin)},
                     .cut_batch = a.batch,
                     .cut_heads = of_cut.heads(per_key_head),
                     .joining_batch = b.batch,
                     .joining_heads = joins.heads(per_key_head)});
    }
  }
  return all;
}

void take_meeting(const Meeting& meeting, const ConstView& of_cut, std::byte*& to) {
  const RowRun run{meeting.rows.row, 1, meeting.rows.count, 0};
  take_rows(of_cut, 0, shifted(meeting.batch, meeting.cut_batch.begin),
            shifted(meeting.heads, meeting.cut_heads.begin), std::span(&run, 1), to);
}

FoundRows met_in_message(const Meeting& meeting, std::int64_t slice, std::span<const RowRun> runs) {
  return {.chunk = meeting.chunk + slice,
          .batch = shifted(meeting.batch, meeting.joining_batch.begin),
          .heads = shifted(meeting.heads, meeting.joining_heads.begin),
          .runs = runs,
          .stride = meeting.rows.count};
}

FoundRows met_in_part(const Meeting& meeting, std::int64_t slice, std::int64_t cut_rows,
                      std::span<const RowRun> runs) {
  return {.chunk = meeting.chunk + slice,
          .batch = shifted(meeting.cut_batch, meeting.joining_batch.begin),
          .heads = shifted(meeting.cut_heads, meeting.joining_heads.begin),
          .runs = runs,
          .stride = cut_rows};
}

}  // namespace treadle::distributed
