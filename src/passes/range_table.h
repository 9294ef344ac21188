// Smallest and largest element of any stretch of a captured array, in a few steps.
//
//   RangeTable table(ids);              // one pass over the array
//   table.integers(100, 4000)           // over ids[100] ... ids[4000]
//
// Blocks of 256 elements have their extremes stored, and pairs of them, pairs of pairs and so on;
// the ends are read. A table describes the array as it was when built: its memory may be kept for the
// next layout, what it says never is.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "ir/graph.h"
#include "passes/integer_range.h"
#include "passes/real_range.h"
#include "treadle/view.h"

namespace treadle::passes {

class RangeTable {
 public:
  RangeTable() = default;
  // A view of rank 1, of any type and stride.
  explicit RangeTable(ConstView array) { build(std::move(array)); }

  // Of another array, or of what the array holds now, in the same memory, which is enough for one of
  // `most` elements, too.
  void build(ConstView array, std::int64_t most = 0);

  [[nodiscard]] std::int64_t length() const { return array_.size(0); }

  // Over the elements first .. last, which must lie inside.
  [[nodiscard]] IntegerRange integers(std::int64_t first, std::int64_t last) const;
  [[nodiscard]] RealRange reals(std::int64_t first, std::int64_t last) const;

 private:
  template <class T>
  struct Extremes {
    T low, high;
    bool nan;
  };
  template <class T>
  // [k][i]: 2^k blocks from i * 2^k on. Of an array before there may be more of them.
  using Levels = std::vector<std::vector<Extremes<T>>>;

  template <class T>
  Extremes<T> scan(std::int64_t first, std::int64_t last) const;
  template <class T>
  void fill(Levels<T>& levels, std::int64_t most);
  template <class T>
  Extremes<T> query(const Levels<T>& levels, std::int64_t first, std::int64_t last) const;

  ConstView array_;
  Levels<std::int64_t> integers_;  // of integers and bools
  Levels<double> reals_;           // of floats
};

// A line of elements of a capture: those along an axis that begin so many elements from its start.
struct CaptureLine {
  std::int32_t slot = 0;
  int axis = 0;
  std::int64_t offset = 0;

  auto operator<=>(const CaptureLine&) const = default;
};

// The tables of a call's captures, built when first asked for. May be asked by several threads.
class CaptureTables {
 public:
  // memory[i] is bound to slots[i] of the graph.
  explicit CaptureTables(std::vector<ConstView> memory) : memory_(std::move(memory)) {}

  // For another call, whose captures lie elsewhere or hold something else: no table is valid any more.
  void bind(const std::vector<ConstView>& memory);

  [[nodiscard]] const ConstView& memory(std::int32_t slot) const {
    return memory_[static_cast<std::size_t>(slot)];
  }

  // Of the elements of a line, at least up to `last`: the next token looks at a part of what is there
  // for all tokens to come.
  const RangeTable& along(const CaptureLine& line, std::int64_t last);

 private:
  struct Key {
    CaptureLine line;
    bool whole;  // else as far as it was first asked for

    auto operator<=>(const Key&) const = default;
  };
  struct Known {
    RangeTable table;
    bool valid = false;
  };
  [[nodiscard]] const RangeTable* find(const CaptureLine& line, std::int64_t last) const;

  std::vector<ConstView> memory_;
  std::shared_mutex mutex_;
  std::map<Key, Known> tables_;
};

}  // namespace treadle::passes
