// Blocks that hold keys of several chunks, and what a tile sees of each chunk.
//
//   const std::span<const ChunkPlaces> parts = find_chunks(blocks, room);
//   for_each_chunk(parts, runs, rules, tile.chunk_begun, whole, part, end);
//
// Sums over keys begin anew with each chunk (plan/chunks.h). A sparse tile sees few keys of each:
// those of chunks that are all in the block, one after the other, are one call of a kernel.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "plan/chunks.h"
#include "plan/tile_plan.h"
#include "run/key_blocks.h"

namespace treadle::run {

// Places of the current block that hold keys of one chunk.
struct ChunkPlaces {
  std::int64_t chunk = 0;
  layout::Range places;
  bool ends = false;  // no later block has keys of it
};
// Of the chunks of a block: those that tiles look at in one go.
using ChunkRoom = std::array<ChunkPlaces, plan::chunks_at_once>;

// The chunks that the keys of the current block are of.
template <class F>
std::span<const ChunkPlaces> find_chunks(const KeyBlocks<F>& blocks, ChunkRoom& room) {
  const std::int32_t* positions = blocks.now().positions;
  const std::int64_t count = blocks.now().count;
  std::size_t found = 0;
  for (std::int64_t place = 0; place < count;) {
    const std::int64_t chunk = plan::chunk_of(positions[place]);
    const std::int64_t keys_end = plan::keys_of_chunk(chunk).end;
    const std::int64_t end =
        positions[count - 1] < keys_end
            ? count
            : std::lower_bound(positions + place, positions + count, keys_end) - positions;
    room[found++] = {chunk, {place, end}, end < count || !blocks.more_before(keys_end)};
    place = end;
  }
  return std::span(room).first(found);
}

// What a tile sees of some places of a block.
struct Seen {
  std::int64_t begin = 0, end = 0;  // from the first to the last of them
  std::int64_t full = 0, partial = 0;

  // One kernel call does it. Where some keys are full and others are not, the mask is asked about all
  // of them, unless that is not allowed.
  [[nodiscard]] bool is_even(bool may_ask) const {
    return full + partial == end - begin && (may_ask || full == 0 || partial == 0);
  }
  [[nodiscard]] bool is_empty() const { return full + partial == 0; }
};

// Drops runs that end before the places: later ones ask no more.
Seen seen_of(std::span<const BlockRun>& runs, layout::Range places);

struct ChunkRules {
  bool at_once = false;  // a kernel takes several whole chunks
  // It may be asked about keys that are full: what the mask says is what the layout says.
  bool may_ask = false;
  std::int32_t* ends = nullptr;  // [key_block]
};

// What a tile sees of the block, in order:
//
//   whole(BlockRun places, chunks)   whole chunks, which end at rules.ends, counted from places.begin
//   part(Range places, runs)         places of one chunk; `begun` says whether there were some before
//   end(chunk)                       there are no more of it
template <class Whole, class Part, class End>
void for_each_chunk(std::span<const ChunkPlaces> parts, std::span<const BlockRun> runs,
                    const ChunkRules& rules, const bool& begun, const Whole& whole,
                    const Part& part, const End& end) {
  BlockRun together;
  std::int64_t chunks = 0;
  const auto flush = [&] {
    if (chunks > 0) whole(together, chunks);
    chunks = 0;
  };
  for (const ChunkPlaces& one : parts) {
    const Seen seen = seen_of(runs, one.places);
    if (seen.is_empty() && !begun) continue;
    if (rules.at_once && one.ends && !begun && seen.is_even(rules.may_ask)) {
      const bool full = seen.partial == 0;
      if (together.full != full || together.end != seen.begin) flush();
      if (chunks == 0) together = {seen.begin, seen.end, full};
      together.end = seen.end;
      rules.ends[chunks++] = static_cast<std::int32_t>(seen.end - together.begin);
      continue;
    }
    flush();
    part(one.places, runs);
    if (one.ends) end(one.chunk);
  }
  flush();
}

}  // namespace treadle::run
