// Splits a call into parts of one position each.
//
// In: offsets per batch entry, or one for all. Out: parts with their positions.
#include "api/positions.h"

#include <algorithm>

#include "base/error.h"

namespace treadle::api {
namespace {

using layout::Range;

void check(std::string_view call, std::string_view name, const std::vector<std::int64_t>& offsets,
           std::int64_t batch, std::int64_t rows) {
  const auto count = static_cast<std::int64_t>(offsets.size());
  if (count > 1 && count != batch) {
    base::fail(
        "{}: there are {} {}, the batch is {}; there must be one for each entry, or one for all",
        call, count, name, batch);
  }
  for (const std::int64_t offset : offsets) {
    if (offset < -last_position || offset > last_position - rows) {
      base::fail("{}: {} holds {}, there are {} rows; positions are between {} and {}", call, name,
                 offset, rows, -last_position, last_position);
    }
  }
}

std::int64_t offset_of(const std::vector<std::int64_t>& offsets, std::int64_t b) {
  if (offsets.empty()) return 0;
  return offsets.size() == 1 ? offsets.front() : offsets[static_cast<std::size_t>(b)];
}

// The rows that are no padding.
Range rows_from(std::int64_t offset, std::int64_t count) {
  return {std::clamp<std::int64_t>(-offset, 0, count), count};
}

}  // namespace

std::vector<Part> parts_of(std::string_view name, const Call& call, const backend::Sizes& sizes) {
  std::vector<Part> parts;
  find_parts(name, call, sizes, parts);
  return parts;
}

void find_parts(std::string_view name, const Call& call, const backend::Sizes& sizes,
                std::vector<Part>& parts) {
  const std::int64_t queries = sizes.queries.count(), keys = sizes.keys.count();
  check(name, "q_offsets", call.q_offsets, sizes.batch, queries);
  check(name, "kv_offsets", call.kv_offsets, sizes.batch, keys);
  parts.clear();
  for (std::int64_t first = 0; first == 0 || first < sizes.batch;) {
    const std::int64_t q = offset_of(call.q_offsets, first), kv = offset_of(call.kv_offsets, first);
    std::int64_t end = first + 1;
    while (end < sizes.batch && offset_of(call.q_offsets, end) == q &&
           offset_of(call.kv_offsets, end) == kv)
      ++end;
    Part part{
        {first, std::min(end, sizes.batch)}, rows_from(q, queries), rows_from(kv, keys), sizes};
    part.sizes.batch = part.batch.count();
    part.sizes.key_batch = std::min(sizes.key_batch, part.sizes.batch);
    part.sizes.first_b = first;
    // Where nothing is left, nothing has a position.
    const auto positions = [](Range rows, std::int64_t offset) {
      return rows.empty() ? Range() : Range(rows.begin + offset, rows.end + offset);
    };
    part.sizes.queries = positions(part.query_rows, q);
    part.sizes.keys = positions(part.key_rows, kv);
    parts.push_back(part);
    first = end;
  }
}

const Part& only_part(std::string_view name, const std::vector<Part>& parts,
                      std::string_view what) {
  if (parts.size() > 1) {
    base::fail("{}: batch entries {} and {} have different offsets; {} for one offset of all", name,
               parts[0].batch.begin, parts[1].batch.begin, what);
  }
  return parts.front();
}

void refuse_offsets(std::string_view name, const Call& call, std::string_view what) {
  for (const auto* offsets : {&call.q_offsets, &call.kv_offsets}) {
    const auto found = std::ranges::find_if(*offsets, [](std::int64_t o) { return o != 0; });
    if (found != offsets->end())
      base::fail("{}: the call has an offset of {}; {} count rows, not positions", name, *found,
                 what);
  }
}

}  // namespace treadle::api
