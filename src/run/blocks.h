// From run lists to blocks of keys: which keys a group of tiles has to look at, and which places of
// a block a tile has to look at.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layout/layout.h"
#include "run/scratch.h"

namespace treadle::run {

// Adds the parts of runs inside begin .. end.
void add_wanted(std::vector<Segment>& wanted, std::span<const layout::Run> runs, std::int64_t begin,
                std::int64_t end);

// Sorted and joined, so that every key is there once. Gives how many there are.
std::int64_t join(std::vector<Segment>& wanted);

// The places of a block that the runs cover, ascending, neighbours of one kind joined. Runs before
// `next` end before the block, and `next` moves on to where the following block will begin looking.
void find_stretches(std::vector<Stretch>& stretches, std::span<const Segment> block,
                    std::span<const layout::Run> runs, std::size_t& next);

}  // namespace treadle::run
