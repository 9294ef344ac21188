// The Sparse Transformer's modes from the original's arguments: checked, and as values.
//
//   SparsePattern p = block_pattern("blocksparse_attention", how);
//   check_length("blocksparse_attention", p, 1024, how.blocksize);
//   options.mask = mask_of(p);
//
// Errors name the call and the arguments as the user wrote them.
#pragma once

#include <cstdint>
#include <string_view>

#include "treadle/mod.h"
#include "treadle/sparse_attention.h"

namespace treadle::api {

// All that decides which pairs are visible, and nothing else: equal ones have equal masks.
struct SparsePattern {
  enum class Mode : std::uint8_t { all, local, strided, fixed };
  Mode mode = Mode::all;
  std::int64_t reach = 0;                // window or stride
  std::int64_t columns = 0, groups = 0;  // of fixed: columns of a group, and how many groups

  bool operator==(const SparsePattern&) const = default;
};

SparsePattern dense_pattern(std::string_view call, const sparse_transformer::DenseArguments& how);
SparsePattern block_pattern(std::string_view call,
                            const sparse_transformer::BlocksparseArguments& how);

// Whether a sequence of this length is one of whole blocks.
void check_length(std::string_view call, const SparsePattern& pattern, std::int64_t length,
                  std::int64_t blocksize);

MaskMod mask_of(const SparsePattern& pattern);

}  // namespace treadle::api
