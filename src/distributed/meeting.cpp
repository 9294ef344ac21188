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
  std::vector<std::size_t> numbers, first, later;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    numbers.push_back(parts_of[pieces[i].rank]++);
    if (pieces[i].chunks == chunks) continue;
    (pieces[i].chunks.begin == chunks.begin ? first : later).push_back(i);
  }
  std::map<std::size_t, PartShape> shapes;
  const auto shape = [&](std::size_t i) -> const PartShape& {
    const auto at = shapes.find(i);
    return at != shapes.end()
               ? at->second
               : shapes.emplace(i, shape_of(pieces[i], passes, chunks)).first->second;
  };
  std::vector<Meeting> all;
  for (const std::size_t l : later) {
    for (const std::size_t f : first) {
      const Piece &a = pieces[l], &b = pieces[f];
      if ((a.rank != rank && b.rank != rank) || a.pass != b.pass) continue;
      const Range batch = common(a.batch, b.batch), key_heads = common(a.key_heads, b.key_heads);
      if (batch.empty() || key_heads.empty() || common(a.leaves, b.leaves).empty()) continue;
      const PartShape &of_later = shape(l), &of_first = shape(f);
      const Range tiles = common(of_later.numbers, of_first.numbers);
      if (tiles.empty()) continue;
      const auto row = [&](const PartShape& part, std::int64_t tile) {
        return part.tiles.row(tile - part.numbers.begin, 0);
      };
      const std::int64_t last = tiles.end - 1;
      const std::int64_t count = row(of_later, last) +
                                 of_later.tiles.size(last - of_later.numbers.begin) -
                                 row(of_later, tiles.begin);
      all.push_back({.later_rank = a.rank,
                     .first_rank = b.rank,
                     .later = numbers[l],
                     .first = numbers[f],
                     .chunk = a.chunks.begin,
                     .slices = of_later.slice_count(),
                     .batch = batch,
                     .heads = {key_heads.begin * per_key_head, key_heads.end * per_key_head},
                     .rows = {row(of_first, tiles.begin), 1, count, row(of_later, tiles.begin)},
                     .later_batch = a.batch,
                     .later_heads = of_later.heads(per_key_head),
                     .first_batch = b.batch,
                     .first_heads = of_first.heads(per_key_head)});
    }
  }
  return all;
}

void take_meeting(const Meeting& meeting, const ConstView& of_later, std::byte*& to) {
  const RowRun run{meeting.rows.row, 1, meeting.rows.count, 0};
  take_rows(of_later, 0, shifted(meeting.batch, meeting.later_batch.begin),
            shifted(meeting.heads, meeting.later_heads.begin), std::span(&run, 1), to);
}

FoundRows met_in_message(const Meeting& meeting, std::int64_t slice, std::span<const RowRun> runs) {
  return {.chunk = meeting.chunk + slice,
          .batch = shifted(meeting.batch, meeting.first_batch.begin),
          .heads = shifted(meeting.heads, meeting.first_heads.begin),
          .runs = runs,
          .stride = meeting.rows.count};
}

FoundRows met_in_part(const Meeting& meeting, std::int64_t slice, std::int64_t later_rows,
                      std::span<const RowRun> runs) {
  return {.chunk = meeting.chunk + slice,
          .batch = shifted(meeting.later_batch, meeting.first_batch.begin),
          .heads = shifted(meeting.later_heads, meeting.first_heads.begin),
          .runs = runs,
          .stride = later_rows};
}

}  // namespace treadle::distributed
