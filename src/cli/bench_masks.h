// The masks that several kinds of cases share.
//
// As text where a formula is all there is, for parse() and for cases that look at the graph alone.
#pragma once

#include <cstdint>

#include "treadle/mod.h"

namespace treadle::cli {

// ---- the Sparse Transformer's, and what is made of them ----

inline constexpr const char* local_text = "q >= kv && q - kv < 128";
inline constexpr const char* strided_text = "q >= kv && (q - kv) % 128 == 0";
inline constexpr const char* local_or_strided_text =
    "q >= kv && (q - kv < 128 || (q - kv) % 128 == 0)";
inline constexpr const char* fixed_text =
    "q >= kv && (kv % 128 >= 112 || q // 128 == kv // 128)";  // the last 16 of each 128
// 128 keys in steps of 8.
inline constexpr const char* dilated_text = "q >= kv && q - kv < 1024 && (q - kv) % 8 == 0";

// ---- others ----

MaskMod causal_window();                                        // the 1024 latest keys
MaskMod random_documents(std::int64_t length, int count = 16);  // of random lengths

// Blocks of 64: three in a window, two for everybody, three at random, others for each head.
MaskMod bigbird_blocks(std::int64_t length, std::int64_t heads);

// 13 x 13 around each cell of a square grid.
MaskMod square_neighborhood(std::int64_t side);

}  // namespace treadle::cli
