// Where partial sums over keys end: at positions that follow from the position alone.
//
//   chunk_of(1500)         // 1: keys 1024 .. 2048
//   keys_of_chunk(1)       // {1024, 2048}
//   keys_of_chunk(64)      // {65536, 67584}
//
// Every 1024 keys up to 65,536, then every 2048 up to 131,072, and twice as many with each octave. A
// row's sums begin anew with each chunk and chunks join in order, so however many keys come later,
// and wherever work is cut, which is at these positions only, the row keeps its bits.
#pragma once

#include <cstdint>

#include "layout/range.h"

namespace treadle::plan {

// Of a position >= 0.
std::int64_t chunk_of(std::int64_t position);
layout::Range keys_of_chunk(std::int64_t chunk);
layout::Range keys_of_chunks(layout::Range chunks);  // not empty

// The chunks that hold these keys; none for none.
layout::Range chunks_of(layout::Range keys);
// The most of these keys that one chunk holds.
std::int64_t longest_chunk(layout::Range keys);

}  // namespace treadle::plan
