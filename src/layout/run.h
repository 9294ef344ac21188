// A Run: keys of one kind in equal pieces, equally far apart. Most runs are one piece.
//
//   Run(10, 20, true)                                              keys 10 .. 19, all of them full
//   Run::stepped({.begin = 5, .width = 2, .step = 128, .count = 3}, true)   5, 6, 133, 134, 261, 262
//
// A list of runs ascends: each one ends before the next begins, so pieces of two runs never
// alternate and a key is found by its run's end. append() makes such lists, and always the same one
// for the same keys: of the longest possible plain pieces, each joins the run before it if it has
// its width and kind and continues its steps.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layout/range.h"

namespace treadle::layout {

class Run {
 public:
  struct Pieces {
    std::int64_t begin = 0, width = 0;
    std::int64_t step = 0, count = 1;  // a step means nothing for one piece
  };

  Run(std::int64_t begin, std::int64_t end, bool full)
      : Run({.begin = begin, .width = end - begin}, full) {}
  // Pieces must not touch: the step is larger than the width.
  static Run stepped(const Pieces& pieces, bool full) { return {pieces, full}; }

  [[nodiscard]] std::int64_t begin() const { return begin_; }
  [[nodiscard]] std::int64_t end() const { return begin() + (count() - 1) * step() + width(); }
  [[nodiscard]] std::int64_t width() const { return width_ & ~full_bit; }
  [[nodiscard]] std::int64_t step() const { return step_; }
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::int64_t length() const { return width() * count(); }  // in keys
  [[nodiscard]] bool full() const { return (width_ & full_bit) != 0; }

  [[nodiscard]] Range piece(std::int64_t i) const {
    return {begin() + i * step(), begin() + i * step() + width()};
  }
  // `number` pieces from the first on.
  [[nodiscard]] Run pieces(std::int64_t first, std::int64_t number) const {
    return {{begin() + first * step(), width(), step(), number}, full()};
  }
  // How many pieces end at or before the key: the number of the first that does not.
  [[nodiscard]] std::int64_t pieces_before(std::int64_t key) const {
    if (key < begin() + width()) return 0;
    return count_ == 1 ? 1 : std::min(count(), (key - begin() - width()) / step() + 1);
  }
  // How many of its keys are smaller.
  [[nodiscard]] std::int64_t keys_before(std::int64_t key) const {
    const std::int64_t before = pieces_before(key);
    if (before == count()) return length();
    return before * width() + std::max<std::int64_t>(key - piece(before).begin, 0);
  }
  bool operator==(const Run&) const = default;

 private:
  Run(const Pieces& pieces, bool full)
      : begin_(static_cast<std::uint32_t>(pieces.begin)),
        width_(static_cast<std::uint32_t>(pieces.width) | (full ? full_bit : 0u)),
        step_(static_cast<std::uint32_t>(pieces.count == 1 ? 0 : pieces.step)),
        count_(static_cast<std::uint32_t>(pieces.count)) {}

  static constexpr std::uint32_t full_bit = 1u << 31;  // lengths are below 2^31
  std::uint32_t begin_, width_, step_, count_;
};

// Appends keys that come after those of the list.
void append(std::vector<Run>& runs, std::int64_t begin, std::int64_t end, bool full);
// The same as appending its pieces one by one.
void append(std::vector<Run>& runs, const Run& run);

// Of a run, the part inside begin .. end: a piece that `begin` cuts, whole pieces, and one that
// `end` cuts; those that there are.
class RunPart {
 public:
  RunPart(const Run& run, std::int64_t begin, std::int64_t end);

  [[nodiscard]] const Run* begin() const { return runs_.data(); }
  [[nodiscard]] const Run* end() const { return runs_.data() + size_; }

 private:
  void add(const Run& run) { runs_[size_++] = run; }

  std::array<Run, 3> runs_{Run{0, 0, false}, Run{0, 0, false}, Run{0, 0, false}};
  std::size_t size_ = 0;
};

// Calls f(Range keys, bool full) for every piece of every run.
template <class F>
void for_each_piece(std::span<const Run> runs, const F& f) {
  for (const Run& run : runs) {
    for (std::int64_t i = 0; i < run.count(); ++i) f(run.piece(i), run.full());
  }
}

// "[0, 16) full", "[0, 8192) step 128 width 1 partial"
std::string to_text(const Run& run);

}  // namespace treadle::layout
