// The period of a mask along the keys, as its own numbers suggest it.
//
//   key_period("q >= kv && (q - kv) % 128 == 0", 65536)     128
//   key_period("kv // 16 % 8 == 0", 65536)                  128: the residues of 8 blocks of 16
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace treadle::layout {

// 1 if there is none. A guess: it tells where to look for what repeats, and nothing relies on it.
std::int64_t key_period(const ir::Graph& mask, std::int64_t keys);

}  // namespace treadle::layout
