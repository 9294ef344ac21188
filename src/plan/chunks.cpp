// Positions to chunks and back: 64 chunks in the first octaves, 32 in each one after them.
#include "plan/chunks.h"

#include <algorithm>
#include <bit>

namespace treadle::plan {
namespace {

constexpr int shortest_bits = 10;  // 1024 keys
constexpr int octave_bits = 5;     // 32 chunks in an octave
// The first position whose chunk is longer.
constexpr int even_bits = shortest_bits + octave_bits + 1;

}  // namespace

std::int64_t chunk_of(std::int64_t position) {
  const int bits = std::bit_width(static_cast<std::uint64_t>(position));
  const int octave = std::max(0, bits - even_bits);
  return (std::int64_t{octave} << octave_bits) + (position >> (shortest_bits + octave));
}

layout::Range keys_of_chunk(std::int64_t chunk) {
  const std::int64_t octave = std::max<std::int64_t>(0, (chunk >> octave_bits) - 1);
  const std::int64_t first = (chunk - (octave << octave_bits)) << (shortest_bits + octave);
  return {first, first + (std::int64_t{1} << (shortest_bits + octave))};
}

layout::Range keys_of_chunks(layout::Range chunks) {
  return {keys_of_chunk(chunks.begin).begin, keys_of_chunk(chunks.end - 1).end};
}

layout::Range chunks_of(layout::Range keys) {
  if (keys.empty()) return {};
  return {chunk_of(keys.begin), chunk_of(keys.end - 1) + 1};
}

std::int64_t longest_chunk(layout::Range keys) {
  // Chunks grow, but the last one may be cut short.
  std::int64_t longest = 0;
  const layout::Range chunks = chunks_of(keys);
  for (std::int64_t chunk = std::max(chunks.begin, chunks.end - 2); chunk < chunks.end; ++chunk) {
    const layout::Range all = keys_of_chunk(chunk);
    longest = std::max(longest, std::min(all.end, keys.end) - std::max(all.begin, keys.begin));
  }
  return longest;
}

}  // namespace treadle::plan
