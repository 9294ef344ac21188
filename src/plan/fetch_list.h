// A FetchList: memory that a kernel brings into the second cache while it multiplies, because later
// tasks need it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace treadle::plan {

// Pieces of fetch_bytes, by their addresses. At `end` lies one more address, which is asked for when
// no other is left.
struct FetchList {
  const std::byte* const* next = nullptr;
  const std::byte* const* end = nullptr;
};
inline constexpr std::int64_t fetch_bytes = 256;

}  // namespace treadle::plan
