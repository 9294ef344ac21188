// Shared pages: which sequences begin with the same pages of a cache, so that these are read once for
// all of them.
//
//   shared_pages(tables, 16)     // {{sequences {0, 2, 3}, pages 64}}
//
// A group is worth its members' trouble: what is read only once is long enough. No sequence is in two
// groups, and those that share less than others make a group of their own or none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace treadle::plan {

struct PageTable {
  const std::int32_t* pages = nullptr;
  std::int64_t stride = 1, count = 0;  // of whole pages
};

struct SharedPages {
  std::vector<std::int64_t> sequences;  // ascending
  std::int64_t pages = 0;
};

// Groups of at most `most` sequences, of at least `fewest_pages` pages.
std::vector<SharedPages> shared_pages(std::span<const PageTable> tables, std::int64_t most,
                                      std::int64_t fewest_pages);

}  // namespace treadle::plan
