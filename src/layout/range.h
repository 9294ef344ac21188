// A Range of positions in a sequence: begin .. end, end excluded.
//
//   Range all = 4096;             // the first 4096 positions
//   Range next{4096, 4097};       // the one after them, as a decoding step sees it
#pragma once

#include <cstdint>

namespace treadle::layout {

struct Range {
  std::int64_t begin = 0, end = 0;

  constexpr Range() = default;
  // Most sequences begin at position 0, so a length is a range.
  constexpr Range(std::int64_t length) : end(length) {}  // NOLINT(google-explicit-constructor)
  constexpr Range(std::int64_t first, std::int64_t past) : begin(first), end(past) {}

  [[nodiscard]] constexpr std::int64_t count() const { return end - begin; }
  [[nodiscard]] constexpr bool empty() const { return end <= begin; }
  bool operator==(const Range&) const = default;
};

}  // namespace treadle::layout
